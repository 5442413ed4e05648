"""The page: files that ship with the gateway, and a policy that lets nothing else in."""

from importlib import resources
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "media-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
# Asked again each time, answered by 304 while the program is the same.
_HEADERS: Final = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}


class _Files(StaticFiles):
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response


def page_routes() -> list[Route | Mount]:
    """The page at / and at the path of each request, and its files under /page/."""
    folder = Path(str(resources.files("fastvideo_gateway.http") / "static"))

    async def page(_: Request) -> Response:
        return FileResponse(folder / "index.html", headers=_HEADERS)

    return [
        Route("/", page),
        Route("/requests/{request_id}", page),
        Mount("/page", _Files(directory=folder), name="page"),
    ]
