"""The worker's configuration, read from the environment here and nowhere else."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastvideo.errors import InvalidField
from fastvideo.model.embedded import EMBEDDED_MODEL_ID
from fastvideo.rpc.tls import TlsConfig
from fastvideo.service.environment import Environment
from fastvideo.service.tls import tls_of
from fastvideo.telemetry.config import TelemetryConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """What a worker is told at its start; times in seconds, sizes in bytes."""

    # The worker's id.
    service_id: str = "worker-1"
    # host:port of the gRPC server.
    listen: str = "127.0.0.1:0"
    # host:port that schedulers dial; empty means the one that is listened on.
    advertise: str = ""
    scheduler_addresses: tuple[str, ...] = ()
    artifacts_address: str = ""
    # A tier of caches that workers share; empty does without.
    redis_url: str = field(default="", repr=False)
    models: tuple[str, ...] = (EMBEDDED_MODEL_ID,)
    # Folder of the user's checkpoints.
    checkpoints: Path | None = None
    # Import names of packages with model families, beside those that ship.
    families: tuple[str, ...] = ()
    # Threads of a forward; None is found by a probe.
    threads: int | None = None
    # Batches that compute side by side.
    compute_slots: int = 1
    # Memory that the worker may use; None is the machine's.
    memory_bytes: int | None = None
    # "ROLE/POOL" to the share of the pool that the role may hold.
    role_memory: Mapping[str, float] = field(default_factory=dict)
    drain_grace_s: float = 8.0
    # How long loops are kept while no scheduler is attached.
    keep_loops_s: float = 30.0
    # Fail a unit whose output is not finite at once, and name the step and the component.
    watch_finite: bool = True
    tls: TlsConfig = field(default_factory=TlsConfig)
    log_level: str = "INFO"
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)


def load_config(environment: Environment) -> Config:
    """Read the variables that README.md lists; what is left out keeps its default.

    OMP_NUM_THREADS is obeyed when FASTVIDEO_THREADS says nothing. Raises InvalidField naming
    the variable that is wrong.
    """
    defaults = Config()
    threads = "FASTVIDEO_THREADS" if environment.text("FASTVIDEO_THREADS") else "OMP_NUM_THREADS"
    return Config(
        service_id=environment.text("FASTVIDEO_SERVICE_ID", defaults.service_id),
        listen=environment.text("FASTVIDEO_LISTEN", defaults.listen),
        advertise=environment.text("FASTVIDEO_ADVERTISE"),
        scheduler_addresses=environment.words("FASTVIDEO_SCHEDULER_ADDRESSES"),
        artifacts_address=environment.text("FASTVIDEO_ARTIFACTS_ADDRESS"),
        redis_url=environment.text("FASTVIDEO_REDIS_URL"),
        models=environment.words("FASTVIDEO_MODELS") or defaults.models,
        checkpoints=environment.path("FASTVIDEO_CHECKPOINTS"),
        families=environment.words("FASTVIDEO_FAMILIES"),
        threads=environment.count_or_auto(threads),
        compute_slots=environment.count("FASTVIDEO_COMPUTE_SLOTS", defaults.compute_slots),
        memory_bytes=environment.count_or_auto("FASTVIDEO_MEMORY_BYTES"),
        role_memory=_shares(environment.words("FASTVIDEO_ROLE_MEMORY")),
        drain_grace_s=environment.number(
            "FASTVIDEO_DRAIN_GRACE_S", defaults.drain_grace_s, least=0
        ),
        keep_loops_s=environment.number("FASTVIDEO_KEEP_LOOPS_S", defaults.keep_loops_s, least=0),
        watch_finite=environment.switch("FASTVIDEO_WATCH_FINITE", defaults.watch_finite),
        tls=tls_of(environment),
        log_level=environment.log_level,
        telemetry=environment.telemetry,
    )


def _shares(words: Sequence[str]) -> dict[str, float]:
    """`ROLE/POOL=SHARE` each; which roles and pools there are is not known here."""
    shares = {}
    for word in words:
        name, _, share = word.partition("=")
        try:
            shares[name] = float(share)
        except ValueError:
            raise InvalidField(
                "FASTVIDEO_ROLE_MEMORY", word, "ROLE/POOL=SHARE, such as decode/activations=0.5"
            ) from None
    return shares
