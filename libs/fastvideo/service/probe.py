"""Whether the service of this environment serves, for probes that cannot speak its TLS.

    python -m fastvideo.service.probe

It asks the standard health service at FASTVIDEO_LISTEN as another service would, so with the
certificate and the trust of the FASTVIDEO_TLS_ variables. The status is 0 where it serves; else
1, with a line that says why not.
"""

import os
import sys
from collections.abc import Mapping
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fastvideo.errors import FastVideoError
from fastvideo.rpc.channel import open_blocking_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.service.environment import Environment
from fastvideo.service.tls import tls_of

TIMEOUT_S: Final = 5.0
_EVERYWHERE: Final = ("0.0.0.0", "[::]", "")


def probe(variables: Mapping[str, str]) -> str:
    """Ask once; empty where the service serves, else why it does not. Raises InvalidField."""
    environment = Environment(variables)
    host, _, port = environment.required("FASTVIDEO_LISTEN").rpartition(":")
    address = f"{'127.0.0.1' if host in _EVERYWHERE else host}:{port}"
    with open_blocking_channel(address, tls=tls_of(environment).client) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=TIMEOUT_S)
        except grpc.RpcError as error:
            return from_rpc_error(error).message
    serving = health_pb2.HealthCheckResponse.SERVING
    return "" if answer.status == serving else "it does not serve"


def main() -> int:
    """Probe the service of this process's environment."""
    try:
        why = probe(os.environ)
    except FastVideoError as error:
        why = error.message
    if why:
        sys.stderr.write(f"{why}\n")
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main())
