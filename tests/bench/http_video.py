"""One video over HTTP with the standard library alone: create, watch, fetch."""

import http.client
import json
from typing import Final

from pipeline import MODEL, Job

TIMEOUT_S: Final = 60.0
_ENDED: Final = (b"event: request.completed", b"event: request.failed", b"event: request.cancelled")


class HttpVideos:
    """A client that keeps its connection; a watch has one of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._kept = self._connection()

    def close(self) -> None:
        """Give the connection back."""
        self._kept.close()

    def video(self, job: Job) -> bytes:
        """The mp4, once its request has ended. Raises RuntimeError unless it completed."""
        asked = {
            "model": MODEL,
            "prompt": job.prompt,
            "num_inference_steps": job.steps,
            "guidance_scale": job.guidance_scale,
            "seed": job.seed,
        }
        video_id = json.loads(self._answer("POST", "/v1/videos", json.dumps(asked)))["id"]
        self._watch(video_id)
        return self._answer("GET", f"/v1/videos/{video_id}/content")

    def _watch(self, video_id: str) -> None:
        watching = self._connection()
        try:
            watching.request("GET", f"/v1/videos/{video_id}/events")
            for line in watching.getresponse():
                if line.startswith(_ENDED):
                    return
        finally:
            watching.close()
        raise RuntimeError(f"the events of {video_id} ended before it did")

    def _answer(self, method: str, path: str, body: str | None = None) -> bytes:
        headers = {"Content-Type": "application/json"} if body else {}
        self._kept.request(method, path, body, headers)
        answer = self._kept.getresponse()
        told = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {told.decode()}")
        return told

    def _connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._address, timeout=TIMEOUT_S)
