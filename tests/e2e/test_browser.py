"""A browser plays what was generated."""

import functools
import http.server
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.stack import Stack

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
PAGE = '<!doctype html><video id="v" src="out.mp4" muted></video>'
PLAY = """
async () => {
  const video = document.getElementById("v");
  await video.play();
  await new Promise((done, failed) => {
    video.onended = done;
    video.onerror = () => failed(new Error(video.error.message));
  });
  const canvas = document.createElement("canvas");
  canvas.width = video.videoWidth;
  canvas.height = video.videoHeight;
  const context = canvas.getContext("2d");
  context.drawImage(video, 0, 0);
  const pixels = context.getImageData(0, 0, canvas.width, canvas.height).data;
  return {
    width: video.videoWidth,
    height: video.videoHeight,
    duration: video.duration,
    ended: video.ended,
    colours: new Set(pixels).size,
  };
}
"""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The folder over HTTP on loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *arguments: object) -> None:
            return

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.row("API-10")
def test_chromium_plays_the_video_to_its_end(stack: Stack, tmp_path: Path) -> None:
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed (apt install chromium)")
    stack.generate("a red three moving left", "-o", str(tmp_path / "out.mp4"), "--seed", "5")
    (tmp_path / "index.html").write_text(PAGE)
    with served(tmp_path) as address, playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=FLAGS)
        try:
            page = browser.new_page()
            page.goto(f"{address}/index.html")
            played = page.evaluate(PLAY)
        finally:
            browser.close()
    assert (played["width"], played["height"], played["ended"]) == (48, 48, True)
    assert played["duration"] == pytest.approx(9 / 8, abs=0.01)
    assert played["colours"] > 10
