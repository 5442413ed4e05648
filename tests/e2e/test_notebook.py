"""What a notebook shows of a generation plays in a browser."""

from pathlib import Path
from typing import Any

import pytest

from fastvideo.client import AsyncClient
from fastvideo.requests.types import OutputSpec
from tests.e2e.stack import Stack
from tests.plugins.browser import chromium, visit
from tests.plugins.notebook import notebook_shell

PLAYED = """
async () => {
  const video = document.querySelector("video");
  video.loop = false;
  await video.play();
  await new Promise((done, failed) => {
    if (video.ended) done();
    video.onended = done;
    video.onerror = () => failed(new Error(video.error.message));
  });
  const canvas = document.createElement("canvas");
  canvas.width = video.videoWidth;
  canvas.height = video.videoHeight;
  const context = canvas.getContext("2d");
  context.drawImage(video, 0, 0);
  const sheet = document.querySelector("img");
  return {
    colours: new Set(context.getImageData(0, 0, canvas.width, canvas.height).data).size,
    shown: video.getBoundingClientRect().width,
    duration: video.duration,
    sheet: [sheet.complete, sheet.naturalWidth > video.videoWidth],
    text: document.body.innerText,
  };
}
"""


async def test_the_video_of_a_cell_plays_and_its_sheet_and_facts_are_there(
    stack: Stack, tmp_path: Path
) -> None:
    async with AsyncClient(stack.gateway) as client:
        made = await client.generate(
            "a red <three>", steps=4, seed=5, outputs=OutputSpec(video=True, sheet=True)
        )
        bundle: Any = (await client.show(made))._repr_mimebundle_()
        small = await client.show(made.request_id, inline_bytes_max=100)
    assert bundle["text/plain"] == repr(made)
    assert "client.save_artifact(" in small._repr_html_()
    page = tmp_path / "cell.html"
    page.write_text(f'<!doctype html><meta charset="utf-8">{bundle["text/html"]}')
    async with chromium() as browser, visit(browser, page.as_uri()) as visited:
        played = await visited.page.evaluate(PLAYED)
        assert visited.complaints == []
    assert played["colours"] > 10
    # A video of 48 pixels is shown at a size that can be seen.
    assert played["shown"] >= 240
    assert abs(played["duration"] - 9 / 8) < 0.02
    assert played["sheet"] == [True, True]
    for fact in (made.request_id, "a red <three>", "seed 5", made.latents_digest):
        assert fact in played["text"]


CELL = """
client = fastvideo.Client(address)
video = client.generate("a red three", steps=4, seed=5)
video
"""


@pytest.mark.slow
def test_a_cell_shows_a_bar_and_then_the_video(
    stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with notebook_shell(tmp_path, monkeypatch) as shell:
        shell.push({"address": stack.gateway})
        shell.run_cell("import fastvideo").raise_error()
        result = shell.run_cell(CELL)
        shell.run_cell("client.close()").raise_error()
        result.raise_error()
        data, _ = shell.display_formatter.format(result.result)
        bars = [output["data"]["text/html"] for output in shell.display_pub.outputs]
    assert data["text/plain"].startswith("Generation req_")
    assert "data:video/mp4;base64," in data["text/html"]
    assert "<progress" in bars[0]
    assert "100 % completed" in bars[-1]
