"""Sessions over HTTP: what is pushed there conditions what is asked there, by the same rules."""

import json
from typing import Any

import pytest

from tests.integration.gateway.worlds import MODEL
from tests.integration.sessions.worlds import SessionWorld
from tests.plugins.http import Answer, call


async def post(world: SessionWorld, path: str, body: Any, key: str = "") -> Answer:
    headers = {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
    data = json.dumps(body).encode()
    address = world.gateway.gateway.http_address
    return await call(address, path, method="POST", headers=headers, body=data)


async def opened(world: SessionWorld) -> str:
    answer = await post(world, "/v1/sessions", {"model": MODEL, "conditioning": "memory"})
    assert answer.status == 201
    assert (answer.json["object"], answer.json["status"]) == ("session", "open")
    return str(answer.json["id"])


@pytest.mark.row("SES-03")
async def test_a_text_that_is_pushed_over_http_joins_the_prompt_of_a_video(
    world: SessionWorld,
) -> None:
    session_id = await opened(world)
    texts = f"/v1/sessions/{session_id}/texts"
    pushed = await post(world, texts, {"text": "black background"}, "k")
    assert (pushed.status, pushed.json["role"]) == (201, "context")
    again = await post(world, texts, {"text": "black background"}, "k")
    assert again.json == pushed.json
    other = await post(world, texts, {"text": "night"}, "k")
    assert (other.status, other.error["code"]) == (409, "idempotency_key_reused")

    asked = {"model": MODEL, "prompt": "a red three", "session_id": session_id}
    video = await post(world, "/v1/videos", asked)
    assert (video.status, video.json["session_id"]) == (202, session_id)
    # The user's own words are the prompt; what was joined is in the spec.
    assert video.json["prompt"] == "a red three"
    found = await call(
        world.gateway.gateway.http_address, f"/api/requests/{video.json['id']}/states/1"
    )
    spec = found.json["state"]["spec"]
    assert spec["inputs"][0]["text"] == "black background. a red three"

    address = world.gateway.gateway.http_address
    state = (await call(address, f"/v1/sessions/{session_id}")).json
    assert [text["id"] for text in state["texts"]] == [pushed.json["id"]]
    assert state["prompts"] == [{"video_id": video.json["id"], "prompt": "a red three"}]

    closed = await post(world, f"/v1/sessions/{session_id}/close", {})
    assert (closed.json["status"], closed.json["texts"]) == ("closed", [])
    for path, body in ((texts, {"text": "late"}), ("/v1/videos", asked)):
        late = await post(world, path, body)
        assert (late.status, late.error["code"]) == (400, "session_closed")
        assert late.error["param"] == "session_id"


WRONG: list[tuple[str, dict[str, Any], int, str]] = [
    ("/v1/sessions", {"conditioning": "all"}, 400, "conditioning"),
    ("/v1/sessions", {"model": "no-such-model"}, 404, "model"),
    ("/v1/sessions", {"inactivity_timeout_s": 10**8}, 400, "inactivity_timeout_s"),
    ("/v1/sessions", {"memory": 3}, 400, "memory"),
    ("/v1/sessions/{id}/texts", {"text": " "}, 400, "text"),
    ("/v1/sessions/{id}/texts", {"text": "x", "role": "king"}, 400, "role"),
    ("/v1/sessions/{id}/texts", {}, 400, "text"),
    ("/v1/sessions/ses_nope/texts", {"text": "x"}, 404, "session_id"),
    ("/v1/sessions/ses_nope/close", {}, 404, "session_id"),
    ("/v1/videos", {"model": MODEL, "prompt": "x", "session_id": "ses_nope"}, 404, "session_id"),
]


async def test_what_is_wrong_is_named(world: SessionWorld) -> None:
    session_id = await opened(world)
    for path, body, status, param in WRONG:
        answer = await post(world, path.format(id=session_id), body)
        assert (answer.status, answer.error["param"]) == (status, param), (path, answer.error)
