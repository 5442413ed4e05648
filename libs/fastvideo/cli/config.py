"""What the command line reads from the environment; the only reader of it here."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class CliConfig:
    """Defaults that the environment gives; options of a command win over them."""

    # "host:port"; empty means the local stack.
    gateway: str = ""
    # Where spans go, such as "http://127.0.0.1:4317"; None sends none.
    otlp_endpoint: str | None = None
    # Of an S3 that is not Amazon's; keys and region come from the usual AWS_ variables.
    s3_endpoint: str = ""
    with_traceback: bool = False


def load_config(environment: Mapping[str, str]) -> CliConfig:
    """Read FASTVIDEO_GATEWAY, FASTVIDEO_TRACEBACK and others' usual variables.

    Those are OTEL_EXPORTER_OTLP_ENDPOINT and AWS_ENDPOINT_URL.

    FASTVIDEO_DATA, the folder of the local stack, is read by `fastvideo.local`.
    """
    return CliConfig(
        gateway=environment.get("FASTVIDEO_GATEWAY", ""),
        otlp_endpoint=environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
        s3_endpoint=environment.get("AWS_ENDPOINT_URL", ""),
        with_traceback=environment.get("FASTVIDEO_TRACEBACK", "") not in ("", "0"),
    )
