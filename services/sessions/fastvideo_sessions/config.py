"""The service's configuration; the only reader of the environment here."""

from dataclasses import dataclass, field
from pathlib import Path

from fastvideo.events.open_log import LogConfig, master_key_of
from fastvideo.events.sealing.keys import MasterKey
from fastvideo.rpc.tls import TlsConfig
from fastvideo.service.environment import Environment
from fastvideo.service.tls import tls_of
from fastvideo.telemetry.config import TelemetryConfig


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
    # Where archived events are; empty when nothing is archived.
    archive_url: str = ""
    s3_endpoint: str = ""
    # The key of the keys under which the log has what tenants write; None keeps it as it is.
    master_key: MasterKey | None = field(default=None, repr=False)
    tls: TlsConfig = field(default_factory=TlsConfig)
    log_level: str = "INFO"
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)

    @property
    def log(self) -> LogConfig:
        """Where the event log is."""
        return LogConfig(self.postgres_dsn, self.archive_url, self.s3_endpoint, self.master_key)


def load_config(environment: Environment) -> Config:
    """Read the variables that README.md lists. InvalidField names one that is absent or wrong."""
    return Config(
        listen=environment.required("FASTVIDEO_LISTEN"),
        service_id=environment.text("FASTVIDEO_SERVICE_ID", "sessions"),
        postgres_dsn=environment.required("FASTVIDEO_POSTGRES_DSN"),
        archive_url=environment.text("FASTVIDEO_ARCHIVE_URL"),
        s3_endpoint=environment.text("AWS_ENDPOINT_URL"),
        master_key=master_key_of(
            environment.text("FASTVIDEO_MASTER_KEY"), environment.path("FASTVIDEO_MASTER_KEY_FILE")
        ),
        nats_url=environment.text("FASTVIDEO_NATS_URL"),
        checkpoints=environment.path("FASTVIDEO_CHECKPOINTS"),
        families=environment.words("FASTVIDEO_FAMILIES"),
        inactivity_timeout_s=environment.count(
            "FASTVIDEO_SESSION_TIMEOUT_S", Config.inactivity_timeout_s
        ),
        prompt_memory_limit=environment.count(
            "FASTVIDEO_SESSION_PROMPTS", Config.prompt_memory_limit
        ),
        tls=tls_of(environment),
        log_level=environment.log_level,
        telemetry=environment.telemetry,
    )
