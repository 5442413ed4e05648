"""What the command line reads from the environment; the only reader of it here."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fastvideo.rpc.tls import ClientTls
from fastvideo.service.environment import Environment
from fastvideo.service.tls import client_tls_of


@dataclass(frozen=True)
class CliConfig:
    """Defaults that the environment gives; options of a command win over them."""

    # "host:port"; empty means the local stack.
    gateway: str = ""
    # What the gateway's door is shown.
    api_key: str = field(default="", repr=False)
    # How a gateway that is named is dialled; None is in the clear.
    tls: ClientTls | None = None
    # Where spans go, such as "http://127.0.0.1:4317"; None sends none.
    otlp_endpoint: str | None = None
    # Of an S3 that is not Amazon's; keys and region come from the usual AWS_ variables.
    s3_endpoint: str = ""
    # The share of this command's traces that are recorded, 0 to 1.
    trace_sample: float = 1.0
    # Where spans are kept in files; empty is the local stack's own place.
    trace_folder: str = ""
    # The HTTP address of a trace store, Jaeger's or Tempo's; empty asks none.
    trace_query_url: str = ""


def load_config(environment: Mapping[str, str]) -> CliConfig:
    """Read FASTVIDEO_GATEWAY, _API_KEY, _TRACE_SAMPLE, _TRACE_FOLDER and _TRACE_QUERY_URL, the
    FASTVIDEO_TLS_ variables of a client, and others' usual ones.

    Those are OTEL_EXPORTER_OTLP_ENDPOINT and AWS_ENDPOINT_URL. Raises InvalidField naming a
    variable.

    FASTVIDEO_DATA, the folder of the local stack, is read by `fastvideo.local`.
    """
    return CliConfig(
        gateway=environment.get("FASTVIDEO_GATEWAY", ""),
        api_key=environment.get("FASTVIDEO_API_KEY", "").strip(),
        tls=client_tls_of(Environment(environment)),
        otlp_endpoint=environment.get("OTEL_EXPORTER_OTLP_ENDPOINT") or None,
        trace_sample=Environment(environment).telemetry.trace_sample,
        trace_folder=environment.get("FASTVIDEO_TRACE_FOLDER", ""),
        trace_query_url=environment.get("FASTVIDEO_TRACE_QUERY_URL", "").rstrip("/"),
        s3_endpoint=environment.get("AWS_ENDPOINT_URL", ""),
    )


def wants_traceback(environment: Mapping[str, str]) -> bool:
    """Whether FASTVIDEO_TRACEBACK asks for the stacks of faults.

    By itself: what is told may be that the rest of the environment is wrong.
    """
    return environment.get("FASTVIDEO_TRACEBACK", "") not in ("", "0")
