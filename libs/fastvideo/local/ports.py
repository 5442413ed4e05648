"""Ports on loopback: chosen once, remembered in the data folder."""

import errno
import json
import random
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from fastvideo.errors import InvalidField
from fastvideo.local.errors import PortTaken
from fastvideo.local.state import write_private

HOST = "127.0.0.1"
_FIRST = 15_000
_TRIES_MAX = 2_000
_PORT_MAX = 65_535


def assign_ports(
    path: Path, names: Sequence[str], fixed: Mapping[str, int], kept: Sequence[str] = ()
) -> dict[str, int]:
    """A free port for each name: the fixed one, else the remembered one, else a new one.

    `kept` are names whose remembered port others rely on: when it is taken by somebody else, that
    is an error (PortTaken), as it is for a fixed port. Any other name just gets a new port.
    """
    remembered = _read(path)
    chosen: dict[str, int] = {}
    last = 0
    for name in names:
        port = fixed.get(name, remembered.get(name, 0))
        if port and not is_free(port):
            if name in fixed or name in kept:
                raise _taken(name, port)
            port = 0
        if not port:
            others = (*chosen.values(), *fixed.values(), *remembered.values())
            port = last = find_free(taken=others, behind=last)
        chosen[name] = port
    duplicates = {port for port in chosen.values() if list(chosen.values()).count(port) > 1}
    if duplicates:
        port = min(duplicates)
        names_of_port = " and ".join(name for name, other in chosen.items() if other == port)
        raise PortTaken(
            f"port {port} is asked for twice: {names_of_port}",
            subject=names_of_port,
            attributes={"port": str(port)},
        )
    write_private(path, json.dumps({**remembered, **chosen}))
    return chosen


def is_free(port: int) -> bool:
    """Whether nobody listens on the loopback port."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do, so that connections of a former run that still linger do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise InvalidField(
                "port", port, f"a port that this user may open ({error.strerror})"
            ) from error
    return True


def find_free(taken: Sequence[int] = (), behind: int = 0) -> int:
    """A free port below the range from which the kernel serves outgoing connections.

    A port inside that range may be in use by any connection at the next start. It is the next
    one behind another, or any: the ports of a stack lie together, so that two stacks which are
    started in the same moment hardly ever choose the same one.
    """
    last = _ephemeral_first() - 1
    port = behind or random.randint(_FIRST, last)
    for _ in range(_TRIES_MAX):
        port = port + 1 if port < last else _FIRST
        if port not in taken and is_free(port):
            return port
    raise PortTaken(f"no free port between {_FIRST} and {last}", subject="port")


def _ephemeral_first() -> int:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    # A machine that gives all ports away leaves none below: take any.
    return first if first > _FIRST + 1_000 else 65_536


def _taken(name: str, port: int) -> PortTaken:
    owner = _listener(port)
    return PortTaken(
        f"port {port} ({name}) is taken by {owner};"
        " give another one (--grpc PORT, --http PORT) or stop what listens there",
        subject=name,
        attributes={"port": str(port)},
    )


def _listener(port: int) -> str:
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            address = connection.laddr
            if connection.status != psutil.CONN_LISTEN or not address or not connection.pid:
                continue
            if address.port == port:
                return f"{psutil.Process(connection.pid).name()} (pid {connection.pid})"
    except psutil.Error:
        pass
    return "another process"


def _read(path: Path) -> dict[str, int]:
    """The remembered ports; a file that is damaged is forgotten, since others can be found."""
    try:
        ports = {str(name): int(port) for name, port in json.loads(path.read_text()).items()}
    except (FileNotFoundError, ValueError, TypeError, AttributeError):
        return {}
    return {name: port for name, port in ports.items() if 0 < port <= _PORT_MAX}
