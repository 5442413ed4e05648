"""The service's configuration; the only reader of the environment here."""

from dataclasses import dataclass, field
from datetime import timedelta

from fastvideo.errors import InvalidField
from fastvideo.rpc.tls import TlsConfig
from fastvideo.service.environment import Environment
from fastvideo.service.tls import tls_of
from fastvideo.telemetry.config import TelemetryConfig

MIB = 1024 * 1024


@dataclass(frozen=True)
class Config:
    """Where the service listens and what it stands on; sizes in bytes."""

    listen: str
    service_id: str
    postgres_dsn: str = field(repr=False)
    # A local folder ("file:///...") or a bucket ("s3://bucket/prefix").
    blobs_url: str
    # Where archived events are; empty when nothing is archived.
    archive_url: str = ""
    # Of an S3 that is not Amazon's; keys and region come from the usual AWS_ variables.
    s3_endpoint: str = ""
    # For hints that the log has grown; empty does without.
    nats_url: str = field(default="", repr=False)
    artifact_bytes_max: int = 4096 * MIB
    # An artifact.updated event at most every so many bytes.
    update_every_bytes: int = 8 * MIB
    # How long a blob without a record is kept.
    blobs_kept: timedelta = timedelta(hours=24)
    # How long bytes are kept that no artifact ever named.
    strays_kept: timedelta = timedelta(hours=24)
    # Seconds between two looks for what has expired or was deleted.
    sweep_s: float = 15.0
    tls: TlsConfig = field(default_factory=TlsConfig)
    log_level: str = "INFO"
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)


def plain_url(blobs_url: str) -> str:
    """Where blobs without a record are: apart from artifacts, since age alone removes them."""
    return blobs_url.rstrip("/") + "/plain"


def load_config(environment: Environment) -> Config:
    """Read the variables that README.md lists. InvalidField names one that is absent or wrong."""
    blobs_url = environment.required("FASTVIDEO_BLOBS_URL")
    archive_url = environment.text("FASTVIDEO_ARCHIVE_URL")
    # What is no artifact's, or old, is removed from there.
    if archive_url and archive_url.rstrip("/") in (blobs_url.rstrip("/"), plain_url(blobs_url)):
        allowed = f"another place than {blobs_url}: what is no artifact is removed from there"
        raise InvalidField("FASTVIDEO_ARCHIVE_URL", archive_url, allowed)
    return Config(
        listen=environment.required("FASTVIDEO_LISTEN"),
        service_id=environment.text("FASTVIDEO_SERVICE_ID", "artifacts"),
        postgres_dsn=environment.required("FASTVIDEO_POSTGRES_DSN"),
        blobs_url=blobs_url,
        archive_url=archive_url,
        s3_endpoint=environment.text("AWS_ENDPOINT_URL"),
        nats_url=environment.text("FASTVIDEO_NATS_URL"),
        artifact_bytes_max=environment.count(
            "FASTVIDEO_ARTIFACT_BYTES_MAX", Config.artifact_bytes_max
        ),
        update_every_bytes=environment.count(
            "FASTVIDEO_ARTIFACT_UPDATE_BYTES", Config.update_every_bytes
        ),
        blobs_kept=timedelta(hours=environment.number("FASTVIDEO_BLOB_HOURS_KEPT", 24, least=1)),
        strays_kept=timedelta(hours=environment.number("FASTVIDEO_STRAY_HOURS_KEPT", 24, least=1)),
        sweep_s=environment.number("FASTVIDEO_SWEEP_SECONDS", Config.sweep_s, least=0.05),
        tls=tls_of(environment),
        log_level=environment.log_level,
        telemetry=environment.telemetry,
    )
