"""HTTP from a test that is in the server's own event loop."""

import asyncio
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Answer:
    """What a server answered; names of headers are lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        """What the body says went wrong."""
        return self.json["error"]


async def call(
    address: str,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] = MappingProxyType({}),
    body: bytes | None = None,
) -> Answer:
    """One request on a connection of its own, answered whole."""

    def ask() -> Answer:
        connection = http.client.HTTPConnection(address, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


def messages(body: bytes) -> list[tuple[str, Any]]:
    """The events of a stream that has ended, by name."""
    found = []
    for block in body.decode().split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in block.splitlines() if line[:1] not in ("", ":")
        )
        if "event" in fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found
