"""Who may come through each route: the rules, put in front of what answers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from fastvideo.rpc.api_keys import bearer_of
from fastvideo.rpc.identity import Access, calling, require_operator
from fastvideo_gateway.access.door import Door

COOKIE: Final = "fastvideo_key"
"""Where the page keeps its key: a browser hands it to nobody else, and no script sees it."""


def guarded(
    routes: Sequence[BaseRoute], rules: Mapping[str, Access], door: Door
) -> Sequence[BaseRoute]:
    """The routes, each behind its rule.

    Raises LookupError for one that has none, and for a rule that is no route's.
    """
    left = set(rules) - {name for route in routes for name in names_of(route)}
    if left:
        raise LookupError(f"access/rules.py names what is not there: {', '.join(sorted(left))}")
    for route in routes:
        accesses = {name.partition(" ")[0]: _rule(rules, name) for name in names_of(route)}
        if isinstance(route, Route | Mount) and set(accesses.values()) != {Access.PUBLIC}:
            route.app = _Entrance(route.app, accesses, door)
    return routes


def names_of(route: BaseRoute) -> Iterator[str]:
    """The names under which a route's rules stand, such as "GET /v1/models"."""
    if isinstance(route, Route):
        for method in sorted(route.methods or ()):
            if method != "HEAD":
                yield f"{method} {route.path}"
    elif isinstance(route, Mount):
        yield f"GET {route.path}"
    else:
        raise LookupError(f"{route!r} is of a kind that no rule is known for")


def shown_by(headers: Headers) -> str:
    """The credential of a request: that of its header, else that of the page's cookie."""
    authorization = headers.get("authorization", "")
    if authorization:
        return bearer_of(authorization)
    return cookie_parser(headers.get("cookie", "")).get(COOKIE, "")


def _rule(rules: Mapping[str, Access], name: str) -> Access:
    if name not in rules:
        raise LookupError(f"say in access/rules.py who may call {name}")
    return rules[name]


class _Entrance:
    """Answers a route's callers in their own name."""

    def __init__(self, app: ASGIApp, accesses: Mapping[str, Access], door: Door) -> None:
        self._app = app
        self._accesses = accesses
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        access = self._accesses.get(method, Access.OPERATOR)
        if access is Access.PUBLIC:
            await self._app(scope, receive, send)
            return
        with calling(self._door.caller_of(shown_by(Headers(scope=scope)))):
            if access is Access.OPERATOR:
                require_operator()
            await self._app(scope, receive, send)
