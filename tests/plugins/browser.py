"""A real Chromium for tests; they are skipped by name where there is none."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Browser, Page

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--autoplay-policy=no-user-gesture-required",
)


@dataclass(frozen=True)
class Visit:
    """A page in a window of its own, and what its console said was wrong."""

    page: "Page"
    complaints: list[str] = field(default_factory=list)


@asynccontextmanager
async def chromium() -> AsyncIterator["Browser"]:
    """A browser without a profile. Skips the test when the machine has none."""
    playwright: Any = pytest.importorskip("playwright.async_api")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed (apt install chromium)")
    async with playwright.async_playwright() as started:
        browser = await started.chromium.launch(executable_path=program, args=FLAGS)
        try:
            yield browser
        finally:
            await browser.close()


@asynccontextmanager
async def visit(
    browser: "Browser",
    url: str,
    *,
    width: int = 1280,
    height: int = 860,
    scheme: Literal["dark", "light"] = "light",
) -> AsyncIterator[Visit]:
    """The page at a URL, of that size and in these colours."""
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme
    )
    page = await context.new_page()
    page.set_default_timeout(60_000)
    visited = Visit(page)

    def on_console(told: Any) -> None:
        if told.type in ("error", "warning"):
            visited.complaints.append(f"{told.type}: {told.text}")

    page.on("console", on_console)
    page.on("pageerror", lambda error: visited.complaints.append(f"exception: {error}"))
    try:
        await page.goto(url)
        yield visited
    finally:
        await context.close()
