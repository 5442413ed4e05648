"""Which gateway a command talks to."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fastvideo.cli.config import CliConfig
from fastvideo.cli.failures import tell
from fastvideo.cli.options import parse_address
from fastvideo.cli.stack_view import StartProgress
from fastvideo.errors import Unavailable
from fastvideo.local import StackAddresses, ensure_running, find_running
from fastvideo.local.operator_key import read_operator_key

if TYPE_CHECKING:
    from fastvideo.client import AsyncClient
    from fastvideo.rpc.tls import ClientTls


@dataclass(frozen=True, slots=True)
class Target:
    """A gateway, and what its door is shown."""

    address: str
    api_key: str = field(default="", repr=False)
    # None for what is in the clear, as the local stack is.
    tls: "ClientTls | None" = None

    def client(self) -> "AsyncClient":
        """A client of it; use it as a context."""
        from fastvideo.client import AsyncClient

        return AsyncClient(self.address, api_key=self.api_key, tls=self.tls)


def find_gateway(config: CliConfig, gateway: str, data: Path | None) -> Target:
    """The given gateway, else the local stack's. Unavailable when none is named and none runs."""
    if address := gateway or config.gateway:
        return Target(parse_address(address), config.api_key, config.tls)
    running = find_running(data)
    if running is None:
        raise Unavailable(
            "no local stack is running; start one with `fastvideo up`, "
            "or name a gateway with --gateway HOST:PORT",
            reason="NO_STACK",
        )
    return _local(config, running)


def find_gateway_http(config: CliConfig, http: str, data: Path | None) -> str:
    """The URL of the given HTTP address, else of the local stack's gateway.

    Unavailable when none is named and no stack runs, and when another gateway is named.
    """
    if http:
        return http.rstrip("/") if "://" in http else f"http://{http.rstrip('/')}"
    if config.gateway:
        raise Unavailable(
            f"the HTTP address of the gateway {config.gateway} is not known; "
            "name it with --http URL",
            reason="NO_HTTP_ADDRESS",
        )
    running = find_running(data)
    if running is None:
        raise Unavailable(
            "no local stack is running; start one with `fastvideo up`, "
            "or name a gateway's HTTP address with --http URL",
            reason="NO_STACK",
        )
    return f"http://{running.gateway_http}"


def find_or_start_gateway(config: CliConfig, gateway: str, data: Path | None) -> Target:
    """As `find_gateway`, but starts the embedded stack in the background when none runs."""
    if gateway or config.gateway:
        return find_gateway(config, gateway, data)
    running = find_running(data)
    if running is None:
        tell("no local stack is running; starting one in the background ...")
        with StartProgress(Console(stderr=True)) as progress:
            running = ensure_running(data, progress)
        tell(f"the stack is up, in {running.data}; `fastvideo down` stops it")
    return _local(config, running)


def _local(config: CliConfig, running: StackAddresses) -> Target:
    """The local stack's gateway, with the key of its own operator unless another one is given."""
    return Target(running.gateway, config.api_key or read_operator_key(running.data))
