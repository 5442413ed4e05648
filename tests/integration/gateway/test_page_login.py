"""The page of a gateway that asks for keys, in a real browser."""

from pathlib import Path

import pytest

from tests.integration.gateway.keyed import keyed_place
from tests.plugins.browser import chromium, visit

REFUSED = "401"


@pytest.mark.slow
async def test_the_page_asks_for_a_key_and_keeps_it_from_scripts(
    postgres_dsn: str, tmp_path: Path
) -> None:
    async with keyed_place(postgres_dsn, tmp_path) as place, chromium() as browser:
        acme = await place.join("acme")
        owned = await place.furnish(acme, "acme")
        url = f"http://{place.world.gateway.http_address}/requests/{owned.request_id}"
        async with visit(browser, url, scheme="dark") as visited:
            page = visited.page
            await page.wait_for_selector("#login[open]")
            # It has the keyboard, and Escape does not send it away.
            assert await page.evaluate("document.activeElement.id") == "login-key"
            await page.keyboard.press("Escape")
            await page.keyboard.press("Escape")
            await page.wait_for_selector("#login[open]")
            await page.wait_for_function("document.activeElement.id === 'login-key'")
            assert page.url == url
            await page.keyboard.type("fv_nonsense")
            await page.keyboard.press("Enter")
            await page.wait_for_selector("#login-trouble:not(:empty)")
            assert "not known" in await page.locator("#login-trouble").inner_text()
            await page.fill("#login-key", acme.key)
            await page.keyboard.press("Enter")
            await page.wait_for_selector(".request-row .prompt")
            await page.wait_for_selector("#headline:not(:empty)")
            who = await page.locator("#who").inner_text()
            assert who.split() == ["Tenant", "acme", "Sign", "out"]
            # What is for operators is not offered.
            assert not await page.locator("#replay").is_visible()
            scripts = "JSON.stringify([document.cookie, Object.entries(localStorage)])"
            assert acme.key[-43:] not in await page.evaluate(scripts)
            assert acme.key[-43:] not in await page.content()
            await page.reload()
            await page.wait_for_selector(".request-row .prompt")
            await page.click("#sign-out")
            await page.wait_for_selector("#login[open]")
            await page.reload()
            await page.wait_for_selector("#login[open]")
            refused = [one for one in visited.complaints if REFUSED in one]
            assert refused == visited.complaints
