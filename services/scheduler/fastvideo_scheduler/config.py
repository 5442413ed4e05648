"""The service's configuration; the only reader of the environment here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastvideo.errors import InvalidField


@dataclass(frozen=True, kw_only=True)
class Config:
    """Where the scheduler listens and what it stands on; times in seconds."""

    # "host:port" of gRPC.
    listen: str
    service_id: str
    postgres_dsn: str = field(repr=False)
    # For the relay and for hints that the log has grown; empty does without both.
    nats_url: str = field(default="", repr=False)
    models: tuple[str, ...] | None = None
    checkpoints: Path | None = None
    shard: str = "0"
    lease_ttl_s: float = 3.0
    # Silence after which a worker counts as lost.
    worker_timeout_s: float = 5.0
    resident_requests_max: int = 32
    attempts_max: int = 3
    log_level: str = "INFO"
    otlp_endpoint: str | None = None


def load_config(environment: Mapping[str, str]) -> Config:
    """Read the variables that README.md lists. InvalidField names one that is absent or wrong."""
    get = environment.get
    checkpoints = get("FASTVIDEO_CHECKPOINTS", "")
    return Config(
        listen=_required(environment, "FASTVIDEO_LISTEN"),
        service_id=get("FASTVIDEO_SERVICE_ID") or "scheduler",
        postgres_dsn=_required(environment, "FASTVIDEO_POSTGRES_DSN"),
        nats_url=get("FASTVIDEO_NATS_URL", ""),
        models=_names(get("FASTVIDEO_MODELS", "")),
        checkpoints=Path(checkpoints) if checkpoints else None,
        shard=get("FASTVIDEO_SHARD") or "0",
        lease_ttl_s=_number(environment, "FASTVIDEO_LEASE_TTL_S", 3.0, least=0.2),
        worker_timeout_s=_number(environment, "FASTVIDEO_WORKER_TIMEOUT_S", 5.0, least=0.2),
        resident_requests_max=int(
            _number(environment, "FASTVIDEO_RESIDENT_REQUESTS_MAX", 32, least=1)
        ),
        attempts_max=int(_number(environment, "FASTVIDEO_ATTEMPTS_MAX", 3, least=1)),
        log_level=(get("FASTVIDEO_LOG_LEVEL") or "info").upper(),
        otlp_endpoint=get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
    )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise InvalidField(name, value, "a value in the environment")
    return value


def _names(text: str) -> tuple[str, ...] | None:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return names or None


def _number(environment: Mapping[str, str], name: str, default: float, *, least: float) -> float:
    text = environment.get(name, "")
    if not text:
        return default
    allowed = f"a number from {least:g}"
    try:
        value = float(text)
    except ValueError as error:
        raise InvalidField(name, text, allowed) from error
    if not least <= value < float("inf"):
        raise InvalidField(name, text, allowed)
    return value
