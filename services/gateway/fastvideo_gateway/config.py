"""The service's configuration; the only reader of the environment here."""

from dataclasses import dataclass, field
from pathlib import Path

from fastvideo.events.open_log import LogConfig, master_key_of
from fastvideo.events.sealing.keys import MasterKey
from fastvideo.requests.lifetimes import TTL_S_MAX
from fastvideo.rpc.tls import TlsConfig
from fastvideo.service.environment import Environment
from fastvideo.service.tls import tls_of
from fastvideo.telemetry.config import TelemetryConfig
from fastvideo_gateway.access.config import AccessConfig, access_of
from fastvideo_gateway.places import TENANT_SHARE


@dataclass(frozen=True)
class Config:
    """Where the gateway listens and whom it talks to."""

    # "host:port" of gRPC and of the HTTP health listener; an empty one does without HTTP.
    listen: str
    service_id: str
    postgres_dsn: str = field(repr=False)
    artifacts_address: str
    sessions_address: str
    # Who is asked for deployment cards; empty does without.
    scheduler_addresses: tuple[str, ...] = ()
    http_listen: str = ""
    # For hints that the log has grown; empty does without.
    nats_url: str = field(default="", repr=False)
    # Whose stream explains requests.
    shard: str = "0"
    # Ids of the models that are offered; None offers every card there is.
    models: tuple[str, ...] | None = None
    # The folder of the user's checkpoints.
    checkpoints: Path | None = None
    # Import names of packages with model families, beside those that ship.
    families: tuple[str, ...] = ()
    # Where archived events are; empty when nothing is archived.
    archive_url: str = ""
    s3_endpoint: str = ""
    # How long what requests made is kept, where their tenants' policies do not say; 0 is for ever.
    media_ttl_s: int = 0
    # The key of the keys under which the log has what tenants write; None keeps it as it is.
    master_key: MasterKey | None = field(default=None, repr=False)
    access: AccessConfig = field(default_factory=AccessConfig)
    # Where replicas keep quotas together; without it each keeps its own.
    redis_url: str = field(default="", repr=False)
    tls: TlsConfig = field(default_factory=TlsConfig)
    log_level: str = "INFO"
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)

    @property
    def log(self) -> LogConfig:
        """Where the event log is."""
        return LogConfig(self.postgres_dsn, self.archive_url, self.s3_endpoint, self.master_key)


def load_config(environment: Environment) -> Config:
    """Read the variables that README.md lists. InvalidField names one that is absent or wrong."""
    listen = environment.required("FASTVIDEO_LISTEN")
    http_listen = environment.address("FASTVIDEO_HTTP_LISTEN")
    return Config(
        listen=listen,
        service_id=environment.text("FASTVIDEO_SERVICE_ID", "gateway"),
        postgres_dsn=environment.required("FASTVIDEO_POSTGRES_DSN"),
        archive_url=environment.text("FASTVIDEO_ARCHIVE_URL"),
        s3_endpoint=environment.text("AWS_ENDPOINT_URL"),
        master_key=master_key_of(
            environment.text("FASTVIDEO_MASTER_KEY"), environment.path("FASTVIDEO_MASTER_KEY_FILE")
        ),
        artifacts_address=environment.required("FASTVIDEO_ARTIFACTS_ADDRESS"),
        sessions_address=environment.required("FASTVIDEO_SESSIONS_ADDRESS"),
        scheduler_addresses=environment.words("FASTVIDEO_SCHEDULER_ADDRESSES"),
        http_listen=http_listen,
        access=access_of(
            environment.text("FASTVIDEO_AUTH"),
            environment.path("FASTVIDEO_ADMIN_KEY_FILE"),
            (listen, http_listen),
            environment.number("FASTVIDEO_TENANT_SHARE", TENANT_SHARE, least=0),
        ),
        redis_url=environment.text("FASTVIDEO_REDIS_URL"),
        tls=tls_of(environment),
        nats_url=environment.text("FASTVIDEO_NATS_URL"),
        shard=environment.text("FASTVIDEO_SHARD", "0"),
        models=environment.words("FASTVIDEO_MODELS") or None,
        checkpoints=environment.path("FASTVIDEO_CHECKPOINTS"),
        families=environment.words("FASTVIDEO_FAMILIES"),
        media_ttl_s=environment.count("FASTVIDEO_MEDIA_TTL_S", 0, least=0, most=TTL_S_MAX),
        log_level=environment.log_level,
        telemetry=environment.telemetry,
    )
