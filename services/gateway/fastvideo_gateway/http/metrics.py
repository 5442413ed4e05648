"""GET /metrics: what this gateway has measured, in Prometheus's words."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from fastvideo.errors import NotFound
from fastvideo.telemetry.exposition import scraper_of_process


def metrics_routes() -> list[Route]:
    """The one path."""

    async def scraped(request: Request) -> Response:
        scraper = scraper_of_process()
        if scraper is None:
            raise NotFound("nothing is measured here", subject="metrics")
        accept = request.headers.get("accept", "")
        # Beside the event loop, which has to answer for its gauges meanwhile.
        answer = await asyncio.to_thread(scraper.scrape, accept)
        return Response(
            answer.body, headers={"Cache-Control": "no-store", "Content-Type": answer.content_type}
        )

    return [Route("/metrics", scraped)]
