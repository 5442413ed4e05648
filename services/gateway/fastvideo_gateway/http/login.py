"""How the page shows a key: posted once, then kept by the browser in a cookie that no script sees.

The cookie holds the key itself, so that every replica knows it and a revoked one opens nothing. It
goes to this host alone, never from another site's page, and ends with the browser.
"""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.rpc.identity import Caller, current_caller
from fastvideo_gateway.access.door import Door
from fastvideo_gateway.http.answers import json_answer
from fastvideo_gateway.http.entrance import COOKIE
from fastvideo_gateway.http.queries import Given, read_body


class LoginGiven(Given):
    """The key to come in with."""

    key: str


@dataclass(frozen=True, slots=True)
class CallerView:
    """Who calls."""

    tenant_id: str
    role: str
    # Empty where there are none.
    key_id: str
    # Whether everybody is let in.
    open: bool


def login_routes(door: Door) -> list[Route]:
    """Who one is, and the page's way in and out."""

    def told(caller: Caller) -> Response:
        view = CallerView(caller.tenant_id, caller.role.value, caller.key_id, door.is_open)
        return json_answer(view)

    async def me(_: Request) -> Response:
        return told(current_caller())

    async def login(request: Request) -> Response:
        key = (await read_body(request, LoginGiven)).key.strip()
        answer = told(door.caller_of(key))
        if not door.is_open:
            answer.set_cookie(
                COOKIE, key, path="/", secure=_is_secure(request), httponly=True, samesite="strict"
            )
        return answer

    async def logout(request: Request) -> Response:
        answer = Response(status_code=204)
        answer.delete_cookie(
            COOKIE, path="/", secure=_is_secure(request), httponly=True, samesite="strict"
        )
        return answer

    return [
        Route("/api/me", me, methods=["GET"]),
        Route("/api/login", login, methods=["POST"]),
        Route("/api/logout", logout, methods=["POST"]),
    ]


def _is_secure(request: Request) -> bool:
    """Whether the browser came by TLS; a proxy in front that ends it says so."""
    forwarded = request.headers.get("x-forwarded-proto", "")
    return "https" in (request.url.scheme, forwarded)
