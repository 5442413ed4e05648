"""The page when something is not there: a request, an answer, the end of a replay."""

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from fastvideo.ids import new_id
from tests.integration.gateway.test_page import finished, open_first, text_of, url_of
from tests.integration.gateway.worlds import World
from tests.plugins.browser import chromium, visit

if TYPE_CHECKING:
    from playwright.async_api import Page, Route

ODD_KEYS = ("Home", "End", "ArrowLeft", "ArrowRight", "0", "r", "t", "j", "?", "Escape")
# What a browser itself says of an answer that is an error, or of none.
TOLD_BY_THE_BROWSER = "Failed to load resource"


def page_s_own(complaints: list[str]) -> list[str]:
    return [one for one in complaints if TOLD_BY_THE_BROWSER not in one]


async def visible(page: "Page", selector: str) -> int:
    return await page.locator(f"{selector}:visible").count()


async def test_a_request_that_does_not_exist_shows_nothing_of_another(world: World) -> None:
    request_id = await finished(world, "a red three")
    nobody = new_id("req", 0)
    async with (
        chromium() as browser,
        visit(browser, url_of(world, f"/requests/{nobody}")) as visited,
    ):
        page = visited.page
        await page.wait_for_selector(f".trouble:has-text('{nobody} does not exist')")
        for key in ODD_KEYS:
            await page.keyboard.press(key)
        await open_first(page)
        assert page.url.startswith(url_of(world, f"/requests/{request_id}"))
        assert await page.title() == "a red three · FastVideo"
        await page.go_back()
        await page.wait_for_selector(f".trouble:has-text('{nobody} does not exist')")
        assert await visible(page, ".title, .card") == 0
        assert await page.title() == "FastVideo"
        for key in ODD_KEYS:
            await page.keyboard.press(key)
        await page.go_forward()
        await page.wait_for_selector("#headline:not(:empty)")
        assert await text_of(page, ".title") == "a red three"
        assert await visible(page, ".card") == 3
        # No id is written so.
        await page.goto(url_of(world, "/requests/%E0%A4%A"))
        await page.wait_for_selector(".trouble:has-text('does not exist')")
        await page.wait_for_selector(".live[data-state=on]")
        assert page_s_own(visited.complaints) == []


@pytest.mark.slow
async def test_a_replay_without_a_report_is_none_and_one_that_was_left_is_forgotten(
    world: World,
) -> None:
    await finished(world, "a red three")
    await finished(world, "a blue two")
    async with chromium() as browser, visit(browser, url_of(world)) as visited:
        page = visited.page
        await open_first(page)

        async def cut(route: "Route") -> None:
            headers = {"Content-Type": "text/event-stream"}
            told = 'event: progress\ndata: {"done": 1, "total": 2, "message": "x"}\n\n'
            await route.fulfill(headers=headers, body=told)

        await page.route("**/api/replays", cut)
        await page.click("#replay-start")
        await page.wait_for_selector(".verdict.differs:has-text('without a report')")
        assert await text_of(page, "#replay-start") == "Replay"
        await page.unroute("**/api/replays", cut)
        held = asyncio.Event()

        async def hold(_: "Route") -> None:
            await held.wait()

        await page.route("**/api/replays", hold)
        await page.click("#replay-start")
        await page.wait_for_selector("#replay-status:has-text('asking')")
        await page.locator(".request-row", has_text="a red three").click()
        await page.wait_for_selector(".title:has-text('a red three')")
        assert await text_of(page, "#replay-status") == ""
        assert await visible(page, ".verdict") == 0
        held.set()
        await page.unroute("**/api/replays", hold)
        await page.click("#replay-start")
        await page.wait_for_selector(".verdict.same")
        assert page_s_own(visited.complaints) == []


@pytest.mark.slow
async def test_what_cannot_be_had_is_said_and_had_later(world: World) -> None:
    request_id = await finished(world, "a red three")
    async with chromium() as browser, visit(browser, url_of(world)) as visited:
        page = visited.page
        await open_first(page)
        await page.wait_for_selector(".leaf.changed >> text=completed")

        async def refuse(route: "Route") -> None:
            error = {"reason": "UNAVAILABLE", "message": "the log is away", "field": ""}
            await route.fulfill(status=503, json={"error": error})

        past = f"**/api/requests/{request_id}/states/*"
        await page.route(past, refuse)
        await page.click("[aria-label='Previous event']")
        await page.wait_for_selector("#leaves:has-text('the log is away')")
        # What is shown under another tab is not of the event before.
        await page.click("#tab-state")
        assert await text_of(page, "#leaves") == "the log is away"
        await page.unroute(past, refuse)
        await page.click("[aria-label='Previous event']")
        await page.wait_for_selector(".leaf >> text=last_sequence")

        # The rest of a list that is longer than its first page.
        answers: list[Any] = []

        async def first_page(route: "Route") -> None:
            if "cursor=" in route.request.url:
                return await refuse(route)
            response = await route.fetch()
            answers.append(json.loads(await response.text()) | {"next_cursor": "more"})
            return await route.fulfill(response=response, json=answers[-1])

        await page.route("**/api/requests?*", first_page)
        await page.fill("#search", "red")
        await page.wait_for_selector("#list-note:has-text('the log is away')")
        await page.unroute("**/api/requests?*", first_page)
        assert answers
        assert page_s_own(visited.complaints) == []
