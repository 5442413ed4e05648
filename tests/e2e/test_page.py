"""The page of a running stack: what was generated is seen, explained and run again."""

import asyncio
import re
from pathlib import Path

import pytest

from tests.e2e.stack import Stack
from tests.plugins.browser import chromium, visit

REPLAY_MS_MAX = 90_000
PLAY = """
async () => {
  const video = document.querySelector(".media video");
  video.loop = false;
  video.currentTime = 0.5;
  await new Promise((done) => (video.onseeked = done));
  await video.play();
  await new Promise((done, failed) => {
    video.onended = done;
    video.onerror = () => failed(new Error(video.error.message));
  });
  return [video.videoWidth, video.videoHeight, video.duration];
}
"""


@pytest.mark.row("API-10")
async def test_a_generation_is_looked_at_on_the_page_and_run_again(
    stack: Stack, tmp_path: Path
) -> None:
    def generated() -> str:
        made = stack.generate("a red three on a page", "-o", str(tmp_path / "o.mp4"), "--seed", "4")
        return str(made["id"])

    request_id = await asyncio.to_thread(generated)
    outcome = await asyncio.to_thread(stack.run, "page", request_id, "--json")
    url = outcome.json["url"]
    assert re.fullmatch(rf"http://127\.0\.0\.1:\d+/requests/{request_id}", url)
    async with chromium() as browser, visit(browser, url) as visited:
        page = visited.page
        await page.wait_for_selector("#headline:not(:empty)")
        assert "ran" in await page.locator("#headline").inner_text()
        width, height, duration = await page.evaluate(PLAY)
        assert (width, height) == (48, 48)
        assert duration == pytest.approx(9 / 8, abs=0.01)

        for kind in ("State", "Scheduler", "Decisions", "Execution"):
            await page.click(f"#replay label:has-text('{kind}')")
            await page.click("#replay-start")
            verdict = page.locator(".verdict:not([hidden])")
            await verdict.wait_for(timeout=REPLAY_MS_MAX)
            assert "same" in str(await verdict.get_attribute("class")), (
                kind,
                await verdict.inner_text(),
            )
            assert await page.locator(".comparison:not([hidden])").count() > 0
            assert await page.locator(".comparison[data-equal=false]:not([hidden])").count() == 0
        steps = await page.locator(".comparison").all_inner_texts()
        assert any("denoise" in step for step in steps)
        assert visited.complaints == []
