"""The service's configuration; the only reader of the environment here."""

from dataclasses import dataclass, field
from pathlib import Path

from fastvideo.deployment.scheduling_policy import read_policy
from fastvideo.events.open_log import LogConfig, master_key_of
from fastvideo.events.records import LEASE_TTL_S_MAX
from fastvideo.events.sealing.keys import MasterKey
from fastvideo.rpc.tls import TlsConfig
from fastvideo.scheduling.policy import SchedulingPolicy
from fastvideo.service.environment import Environment
from fastvideo.service.tls import tls_of
from fastvideo.telemetry.config import TelemetryConfig


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
    # Import names of packages with model families, beside those that ship.
    families: tuple[str, ...] = ()
    shard: str = "0"
    lease_ttl_s: float = 1.5
    # Silence after which a worker counts as lost.
    worker_timeout_s: float = 5.0
    resident_requests_max: int = 32
    attempts_max: int = 5
    # How the shard schedules; the two knobs above go before it.
    policy: SchedulingPolicy = field(default_factory=SchedulingPolicy)
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
    """Read the variables that README.md lists. InvalidField names one that is absent or wrong.

    Raises InvalidDocument for a scheduling policy that cannot be read.
    """
    policy_file = environment.path("FASTVIDEO_SCHEDULING_POLICY")
    policy = read_policy(policy_file) if policy_file is not None else SchedulingPolicy()
    return Config(
        listen=environment.required("FASTVIDEO_LISTEN"),
        service_id=environment.text("FASTVIDEO_SERVICE_ID", "scheduler"),
        postgres_dsn=environment.required("FASTVIDEO_POSTGRES_DSN"),
        archive_url=environment.text("FASTVIDEO_ARCHIVE_URL"),
        s3_endpoint=environment.text("AWS_ENDPOINT_URL"),
        master_key=master_key_of(
            environment.text("FASTVIDEO_MASTER_KEY"), environment.path("FASTVIDEO_MASTER_KEY_FILE")
        ),
        nats_url=environment.text("FASTVIDEO_NATS_URL"),
        models=environment.words("FASTVIDEO_MODELS") or None,
        checkpoints=environment.path("FASTVIDEO_CHECKPOINTS"),
        families=environment.words("FASTVIDEO_FAMILIES"),
        shard=environment.text("FASTVIDEO_SHARD", "0"),
        lease_ttl_s=environment.number(
            "FASTVIDEO_LEASE_TTL_S", 1.5, least=0.2, most=LEASE_TTL_S_MAX
        ),
        worker_timeout_s=environment.number("FASTVIDEO_WORKER_TIMEOUT_S", 5.0, least=0.2),
        resident_requests_max=environment.count(
            "FASTVIDEO_RESIDENT_REQUESTS_MAX", policy.resident_requests_max
        ),
        attempts_max=environment.count("FASTVIDEO_ATTEMPTS_MAX", policy.attempts_max),
        policy=policy,
        tls=tls_of(environment),
        log_level=environment.log_level,
        telemetry=environment.telemetry,
    )
