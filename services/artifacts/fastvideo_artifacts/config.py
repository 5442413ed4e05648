"""The service's configuration; the only reader of the environment here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fastvideo.errors import InvalidField

MIB = 1024 * 1024


@dataclass(frozen=True)
class Config:
    """Where the service listens and what it stands on; sizes in bytes."""

    listen: str
    service_id: str
    postgres_dsn: str = field(repr=False)
    # A local folder ("file:///...") or a bucket ("s3://bucket/prefix").
    blobs_url: str
    # Of an S3 that is not Amazon's; keys and region come from the usual AWS_ variables.
    s3_endpoint: str = ""
    # For hints that the log has grown; empty does without.
    nats_url: str = field(default="", repr=False)
    artifact_bytes_max: int = 4096 * MIB
    # An artifact.updated event at most every so many bytes.
    update_every_bytes: int = 8 * MIB
    log_level: str = "INFO"
    otlp_endpoint: str | None = None


def load_config(environment: Mapping[str, str]) -> Config:
    """Read the variables that README.md lists. InvalidField names one that is absent or wrong."""
    return Config(
        listen=_required(environment, "FASTVIDEO_LISTEN"),
        service_id=environment.get("FASTVIDEO_SERVICE_ID", "artifacts"),
        postgres_dsn=_required(environment, "FASTVIDEO_POSTGRES_DSN"),
        blobs_url=_required(environment, "FASTVIDEO_BLOBS_URL"),
        s3_endpoint=environment.get("AWS_ENDPOINT_URL", ""),
        nats_url=environment.get("FASTVIDEO_NATS_URL", ""),
        artifact_bytes_max=_size(
            environment, "FASTVIDEO_ARTIFACT_BYTES_MAX", Config.artifact_bytes_max
        ),
        update_every_bytes=_size(
            environment, "FASTVIDEO_ARTIFACT_UPDATE_BYTES", Config.update_every_bytes
        ),
        log_level=environment.get("FASTVIDEO_LOG_LEVEL", "info").upper(),
        otlp_endpoint=environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
    )


def _required(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "")
    if not value:
        raise InvalidField(name, value, "a value in the environment")
    return value


def _size(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or int(text) == 0:
        raise InvalidField(name, text, "a whole number of bytes, 1 or more")
    return int(text)
