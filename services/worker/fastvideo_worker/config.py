"""The worker's configuration, read from the environment here and nowhere else."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastvideo.errors import InvalidField


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """What a worker is told at its start; times in seconds, sizes in bytes."""

    worker_id: str = "worker-1"
    # host:port of the gRPC server.
    listen: str = "127.0.0.1:0"
    # host:port that schedulers dial; empty means the one that is listened on.
    advertise: str = ""
    scheduler_addresses: tuple[str, ...] = ()
    artifacts_address: str = ""
    models: tuple[str, ...] = ("moving-digits",)
    # Folder of the user's checkpoints.
    checkpoints: Path | None = None
    # Threads of a forward; None is found by a probe.
    threads: int | None = None
    # Memory that the worker may use; None is the machine's.
    memory_bytes: int | None = None
    drain_grace_s: float = 8.0
    log_level: str = "INFO"
    otlp_endpoint: str | None = None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "WorkerConfig":
        """Read the FASTVIDEO_* variables; what is left out keeps its default.

        OMP_NUM_THREADS is obeyed when FASTVIDEO_THREADS says nothing. Raises InvalidField
        naming the variable that is wrong.
        """
        get = environment.get
        checkpoints = get("FASTVIDEO_CHECKPOINTS", "")
        defaults = cls()
        threads = get("FASTVIDEO_THREADS") or get("OMP_NUM_THREADS")
        return cls(
            worker_id=get("FASTVIDEO_SERVICE_ID") or defaults.worker_id,
            listen=get("FASTVIDEO_LISTEN") or defaults.listen,
            advertise=get("FASTVIDEO_ADVERTISE", ""),
            scheduler_addresses=_words(get("FASTVIDEO_SCHEDULER_ADDRESSES", "")),
            artifacts_address=get("FASTVIDEO_ARTIFACTS_ADDRESS", ""),
            models=_words(get("FASTVIDEO_MODELS", "")) or defaults.models,
            checkpoints=Path(checkpoints) if checkpoints else None,
            threads=_count("FASTVIDEO_THREADS", threads),
            memory_bytes=_count("FASTVIDEO_MEMORY_BYTES", get("FASTVIDEO_MEMORY_BYTES")),
            drain_grace_s=_seconds(
                "FASTVIDEO_DRAIN_GRACE_S", get("FASTVIDEO_DRAIN_GRACE_S"), defaults.drain_grace_s
            ),
            log_level=(get("FASTVIDEO_LOG_LEVEL") or defaults.log_level).upper(),
            otlp_endpoint=get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
        )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _count(name: str, text: str | None) -> int | None:
    if not text or text == "auto":
        return None
    if not text.isdigit() or int(text) < 1:
        raise InvalidField(name, text, "auto, or a whole number from 1")
    return int(text)


def _seconds(name: str, text: str | None, default: float) -> float:
    if not text:
        return default
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidField(name, text, "seconds, 0 or more") from error
    if not 0 <= value < float("inf"):
        raise InvalidField(name, text, "seconds, 0 or more")
    return value
