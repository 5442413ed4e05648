"""The service's configuration; the only reader of the environment here."""

from dataclasses import dataclass, field
from pathlib import Path

from fastvideo.service import Environment


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
    # Import names of packages with model families, beside those that ship.
    families: tuple[str, ...] = ()
    inactivity_timeout_s: int = 1800
    prompt_memory_limit: int = 20
    log_level: str = "INFO"
    otlp_endpoint: str | None = None


def load_config(environment: Environment) -> Config:
    """Read the variables that README.md lists. InvalidField names one that is absent or wrong."""
    return Config(
        listen=environment.required("FASTVIDEO_LISTEN"),
        service_id=environment.text("FASTVIDEO_SERVICE_ID", "sessions"),
        postgres_dsn=environment.required("FASTVIDEO_POSTGRES_DSN"),
        nats_url=environment.text("FASTVIDEO_NATS_URL"),
        checkpoints=environment.path("FASTVIDEO_CHECKPOINTS"),
        families=environment.words("FASTVIDEO_FAMILIES"),
        inactivity_timeout_s=environment.count(
            "FASTVIDEO_SESSION_TIMEOUT_S", Config.inactivity_timeout_s
        ),
        prompt_memory_limit=environment.count(
            "FASTVIDEO_SESSION_PROMPTS", Config.prompt_memory_limit
        ),
        log_level=environment.log_level,
        otlp_endpoint=environment.otlp_endpoint,
    )
