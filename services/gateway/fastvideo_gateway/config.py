"""The service's configuration; the only reader of the environment here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastvideo.errors import InvalidField


@dataclass(frozen=True)
class Config:
    """Where the gateway listens and whom it talks to."""

    # "host:port" of gRPC and of the HTTP health listener; an empty one does without HTTP.
    listen: str
    service_id: str
    postgres_dsn: str = field(repr=False)
    artifacts_address: str
    sessions_address: str
    http_listen: str = ""
    # For hints that the log has grown; empty does without.
    nats_url: str = field(default="", repr=False)
    # Ids of the models that are offered; None offers every card there is.
    models: tuple[str, ...] | None = None
    # The folder of the user's checkpoints.
    checkpoints: Path | None = None
    log_level: str = "INFO"
    otlp_endpoint: str | None = None


def load_config(environment: Mapping[str, str]) -> Config:
    """Read the variables that README.md lists. InvalidField names one that is absent or wrong."""
    checkpoints = environment.get("FASTVIDEO_CHECKPOINTS", "")
    return Config(
        listen=_required(environment, "FASTVIDEO_LISTEN"),
        service_id=environment.get("FASTVIDEO_SERVICE_ID", "gateway"),
        postgres_dsn=_required(environment, "FASTVIDEO_POSTGRES_DSN"),
        artifacts_address=_required(environment, "FASTVIDEO_ARTIFACTS_ADDRESS"),
        sessions_address=_required(environment, "FASTVIDEO_SESSIONS_ADDRESS"),
        http_listen=_address(environment, "FASTVIDEO_HTTP_LISTEN"),
        nats_url=environment.get("FASTVIDEO_NATS_URL", ""),
        models=_names(environment.get("FASTVIDEO_MODELS", "")),
        checkpoints=Path(checkpoints) if checkpoints else None,
        log_level=environment.get("FASTVIDEO_LOG_LEVEL", "info").upper(),
        otlp_endpoint=environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
    )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise InvalidField(name, value, "a value in the environment")
    return value


def _address(environment: Mapping[str, str], name: str) -> str:
    text = environment.get(name, "")
    if text and not text.rpartition(":")[2].isdecimal():
        raise InvalidField(name, text, "host:port")
    return text


def _names(text: str) -> tuple[str, ...] | None:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    return names or None
