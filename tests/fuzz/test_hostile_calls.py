"""A few hundred hostile inputs through each door: refused by name, and nothing is stored."""

from collections.abc import Awaitable, Callable

import pytest

from fastvideo_gateway.access.rules import METHODS
from tests.fuzz.places import Place
from tests.fuzz.pulse import pulse_of
from tests.fuzz.rpcs import methods_of
from tests.fuzz.runs import http_run, rpc_run

ARTIFACTS = "fastvideo.artifacts.v1.ArtifactService"
SESSIONS = "fastvideo.sessions.v1.SessionService"
# What changes nothing by being refused; a call that streams may have done its work before.
MAY_STORE = ("OK", "OPEN", "CLOSED", "CANCELLED", "200", "202", "204")
# Sessions that nobody uses end after as short a time as was asked for.
BY_THEMSELVES = {"SessionClosed"}
GENEROUS_S = 10.0


async def ids_of(place: Place) -> tuple[str, ...]:
    """Ids that exist, so that some inputs get far."""
    request_id = await place.world.submit()
    return ("moving-digits", request_id, f"request-{request_id}", "default", "0")


def unchanged(place: Place, size: int) -> Callable[[int, str], Awaitable[None]]:
    """Checks after each refusal that the log is what it was."""

    async def check(number: int, code: str) -> None:
        nonlocal size
        new = [stored.type for stored in await place.world.log.read_partition(0, size)]
        size += len(new)
        told = f"number {number} was refused and stored {new}"
        assert set(new) <= BY_THEMSELVES or code in MAY_STORE, told

    return check


async def test_hostile_calls_of_every_method_are_refused_by_name(place: Place) -> None:
    world = place.world
    ids = await ids_of(place)
    methods = methods_of(*sorted({name.split("/")[1] for name in METHODS}))
    async with pulse_of(world.gateway.http_address) as pulse:
        check = unchanged(place, await world.size())
        tally = await rpc_run(world.gateway.address, methods, range(200), ids, check)
    tally.check()
    assert tally.codes["INVALID_ARGUMENT"] > 50
    assert pulse.worst_s < GENEROUS_S


@pytest.mark.parametrize("service", [ARTIFACTS, SESSIONS])
async def test_services_behind_refuse_the_same(place: Place, service: str) -> None:
    address = {ARTIFACTS: place.artifacts, SESSIONS: place.sessions}[service]
    ids = await ids_of(place)
    check = unchanged(place, await place.world.size())
    tally = await rpc_run(address, methods_of(service), range(100), ids, check)
    tally.check()


async def test_hostile_requests_of_every_route_are_refused_by_name(place: Place) -> None:
    world = place.world
    ids = await ids_of(place)
    async with pulse_of(world.gateway.http_address) as pulse:
        tally = await http_run(world.gateway.http_address, range(250), ids)
    tally.check()
    assert tally.codes["400"] > 50
    assert pulse.worst_s < GENEROUS_S
