"""The service's configuration; the only reader of the environment here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastvideo.errors import InvalidField


@dataclass(frozen=True)
class Config:
    """Where the service listens, what it stands on, and a session's defaults; times in seconds."""

    listen: str
    service_id: str
    postgres_dsn: str = field(repr=False)
    # Empty does without NATS: events are then read from the log.
    nats_url: str = field(default="", repr=False)
    # The folder of the user's checkpoints.
    checkpoints: Path | None = None
    inactivity_timeout_s: int = 1800
    prompt_memory_limit: int = 20
    log_level: str = "INFO"
    otlp_endpoint: str | None = None


def load_config(environment: Mapping[str, str]) -> Config:
    """Read the variables that README.md lists. InvalidField names one that is absent or wrong."""
    checkpoints = environment.get("FASTVIDEO_CHECKPOINTS", "")
    return Config(
        listen=_required(environment, "FASTVIDEO_LISTEN"),
        service_id=environment.get("FASTVIDEO_SERVICE_ID", "sessions"),
        postgres_dsn=_required(environment, "FASTVIDEO_POSTGRES_DSN"),
        nats_url=environment.get("FASTVIDEO_NATS_URL", ""),
        checkpoints=Path(checkpoints) if checkpoints else None,
        inactivity_timeout_s=_count(
            environment, "FASTVIDEO_SESSION_TIMEOUT_S", Config.inactivity_timeout_s
        ),
        prompt_memory_limit=_count(
            environment, "FASTVIDEO_SESSION_PROMPTS", Config.prompt_memory_limit
        ),
        log_level=environment.get("FASTVIDEO_LOG_LEVEL", "info").upper(),
        otlp_endpoint=environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
    )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise InvalidField(name, value, "a value in the environment")
    return value


def _count(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise InvalidField(name, text, "a whole number, 1 or more")
    return int(text)
