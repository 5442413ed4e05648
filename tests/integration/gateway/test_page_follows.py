"""The page misses nothing of what happens while it reads, and keeps its place."""

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from fastvideo.requests.events import RequestProgressed, RequestStarted
from tests.integration.gateway.test_page import finished, open_first, url_of
from tests.integration.gateway.test_page_troubles import page_s_own
from tests.integration.gateway.worlds import World
from tests.plugins.browser import chromium, visit

if TYPE_CHECKING:
    from playwright.async_api import Route

HALF = RequestProgressed(fraction=0.5, node_id="denoise", step=1, steps=2)
# In a list's row, which is told of whatever happens.
RUNNING = ".request-row .glyph[data-status=running]"


async def test_what_happens_while_something_is_read_is_shown(world: World) -> None:
    async with (
        chromium() as browser,
        visit(browser, url_of(world, "/health/live")) as visited,
    ):
        page = visited.page

        async def between(route: "Route") -> None:
            # A list that did not wait would be read meanwhile.
            await asyncio.sleep(0.5)
            await world.submit("a first three")
            await route.continue_()

        await page.route("**/api/live", between)
        await page.goto(url_of(world))
        await page.wait_for_selector("text=1 request")

        async def list_late(route: "Route") -> None:
            response = await route.fetch()
            await world.submit("a second three")
            await page.wait_for_selector(".prompt:has-text('a second three')")
            await route.fulfill(response=response)

        await page.fill("#search", "seven")
        await page.wait_for_selector("text=Nothing found")
        await page.route("**/api/requests?*", list_late, times=1)
        await page.keyboard.press("Escape")
        await page.wait_for_selector("text=2 requests")

        # The newest request, while it is opened and while its first event is looked up.
        request_id = await world.submit("a third three")
        await page.wait_for_selector(".prompt:has-text('a third')")
        once = f"**/api/requests/{request_id}"

        async def request_late(route: "Route") -> None:
            response = await route.fetch()
            await world.schedule(request_id, RequestStarted(attempt=1))
            await page.wait_for_selector(RUNNING)
            await route.fulfill(response=response)

        async def look_late(route: "Route") -> None:
            await world.schedule(request_id, HALF)
            await page.wait_for_selector("#request-status:has-text('running 50 %')")
            await route.continue_()

        await page.route(once, request_late, times=1)
        await page.route(f"{once}/states/*", look_late, times=1)
        await open_first(page)
        await page.wait_for_selector("#request-status:has-text('running 50 %')")
        await page.wait_for_selector(".scrub output:has-text('3 of 3')")
        assert page_s_own(visited.complaints) == []


@pytest.mark.slow
async def test_a_request_whose_row_was_behind_is_read_again_where_one_stands(world: World) -> None:
    request_id = await finished(world, "a red three")
    async with chromium() as browser, visit(browser, url_of(world)) as visited:
        page, asked = visited.page, asyncio.Semaphore(0)

        async def behind(route: "Route") -> None:
            response = await route.fetch()
            await route.fulfill(json=json.loads(await response.text()) | {"fresh": False})
            asked.release()

        await page.route(f"**/api/requests/{request_id}", behind)
        await open_first(page)
        await page.keyboard.press("Home")
        await page.wait_for_selector("#past-where:has-text('request.accepted')")
        async with asyncio.timeout(60):
            # What was read the second time is shown by the third.
            for _ in range(3):
                await asked.acquire()
        assert await page.locator(".scrub output").inner_text() == "1 of 9"
        assert page.url.endswith("?event=1")
        assert visited.complaints == []
