"""Every route has a rule, and every rule a route; what a request shows."""

import pytest
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute

from fastvideo.rpc.identity import Access
from fastvideo_gateway.access.door import OpenDoor
from fastvideo_gateway.http.entrance import guarded, shown_by


async def answer(_: Request) -> Response:
    return Response()


ROUTE = Route("/things", answer, methods=["GET", "DELETE"])
RULES = {"GET /things": Access.PUBLIC, "DELETE /things": Access.TENANT}


@pytest.mark.parametrize(
    ("route", "rules", "said"),
    [
        (ROUTE, {"GET /things": Access.PUBLIC}, "who may call DELETE /things"),
        (ROUTE, {**RULES, "GET /gone": Access.PUBLIC}, "GET /gone"),
        (WebSocketRoute("/things", answer), {}, "no rule is known"),
    ],
)
def test_an_application_whose_rules_are_not_its_routes_does_not_start(
    route: BaseRoute, rules: dict[str, Access], said: str
) -> None:
    with pytest.raises(LookupError, match=said):
        guarded([route], rules, OpenDoor())
    guarded([Route("/things", answer, methods=["GET", "DELETE"])], RULES, OpenDoor())


@pytest.mark.parametrize(
    ("headers", "shown"),
    [
        ({}, ""),
        ({"authorization": "Bearer fv_a"}, "fv_a"),
        ({"authorization": "Basic fv_a"}, ""),
        ({"cookie": "fastvideo_key=fv_b"}, "fv_b"),
        ({"cookie": 'a=b; fastvideo_key=fv_b; broken; c="d'}, "fv_b"),
        ({"cookie": "fastvideo_key=fv_b", "authorization": "Bearer fv_a"}, "fv_a"),
        # A header that is there is meant, whatever it says.
        ({"cookie": "fastvideo_key=fv_b", "authorization": "nonsense"}, ""),
    ],
)
def test_a_request_shows_its_header_else_its_cookie(headers: dict[str, str], shown: str) -> None:
    assert shown_by(Headers(headers)) == shown
