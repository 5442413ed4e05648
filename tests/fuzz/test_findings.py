"""What the runs found once, as it must be from then on."""

import json
import tracemalloc

import grpc
import pytest

from fastvideo.api.events.v1 import log_pb2, log_pb2_grpc
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo_gateway.http.queries import JSON_MARKS_MAX
from tests.fuzz.places import Place
from tests.plugins.http import Answer, call

JSON = "application/json"
MARKS = JSON_MARKS_MAX + 1


async def post(place: Place, body: bytes, kind: str = JSON, path: str = "/v1/videos") -> Answer:
    headers = {"Content-Type": kind}
    address = place.world.gateway.http_address
    return await call(address, path, method="POST", headers=headers, body=body)


def form(*parts: tuple[str, bytes], end: bytes = b"--b--\r\n") -> bytes:
    return (
        b"".join(
            b'--b\r\nContent-Disposition: form-data; name="'
            + name.encode()
            + b'"\r\n\r\n'
            + data
            + b"\r\n"
            for name, data in parts
        )
        + end
    )


PROMPT = ("prompt", b"a red three")


LIES = (
    # A name twice: the last one would have won, in silence.
    (b'{"prompt": "a", "seed": 1, "seed": 2}', JSON, "seed"),
    (b'{"prompt": "a", "input_reference": {"file_id": "a", "file_id": "b"}}', JSON, "file_id"),
    # A truth value is no number, and the digits of other alphabets are none.
    (b'{"prompt": "a", "seed": true}', JSON, "seed"),
    ('{"prompt": "a", "seed": "\u0663"}'.encode(), JSON, "seed"),
    (b'{"prompt": "a", "seconds": "1_0"}', JSON, "seconds"),
    # A form without its end would pass for one without its last field.
    (form(PROMPT, ("size", b"48x48"), end=b""), "multipart/form-data; boundary=b", "body"),
    (form(PROMPT), "multipart/form-data; boundary=other", "body"),
    (form(PROMPT), "multipart/form-data", "body"),
    (form(PROMPT, PROMPT), "multipart/form-data; boundary=b", "prompt"),
    (form(*[PROMPT] * 65), "multipart/form-data; boundary=b", "body"),
    # Millions of tiny values held gigabytes and the event loop for seconds.
    (b'{"prompt": [' + b"0," * MARKS + b"0]}", JSON, "body"),
    (b'{"prompt": ' + b"[" * MARKS, JSON, "body"),
    (b"{" + b'"a":{},' * MARKS + b'"prompt": "a"}', JSON, "body"),
    (b'{"prompt": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", JSON, "body"),
    (b'{"prompt": "a", "seed": ' + b"9" * 1_000_000 + b"}", JSON, "body"),
    (b'{"prompt": "\\ud800"}', JSON, "body"),
    (b'{"prompt": NaN}', JSON, "prompt"),
)


async def test_bodies_that_lie_are_refused_by_name(place: Place) -> None:
    before = await place.world.size()
    for body, kind, named in LIES:
        answer = await post(place, body, kind)
        assert (answer.status, answer.error["param"]) == (400, named), body[:100]
        assert len(answer.body) < 1_000
    assert await place.world.size() == before

    # Nor does it cost memory.
    body = b'{"prompt": [' + b"{}," * 5_000_000 + b"0]}"
    tracemalloc.start()
    try:
        answer = await post(place, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (answer.status, answer.error["param"]) == (400, "body")
    # The body, whole and in the pieces that it came in; with its values it was 2 GB.
    assert peak < 5 * len(body)


async def test_what_is_asked_wrongly_is_refused_by_name(place: Place) -> None:
    address = place.world.gateway.http_address
    # Text is no number where JSON has numbers.
    body = json.dumps({"kind": "state", "comparisons_max": "5"}).encode()
    answer = await post(place, body, path="/api/replays")
    assert (answer.status, answer.error["field"]) == (400, "comparisons_max")
    # A bare number is no moment.
    answer = await call(address, "/api/events?until=0.5")
    assert (answer.status, answer.error["field"]) == (400, "until")
    # An id that a database cannot even look for.
    answer = await call(address, "/v1/videos?after=a%00b")
    assert (answer.status, answer.error["param"]) == (400, "after")
    # A method that a path has not names those that it has.
    answer = await call(address, "/v1/videos", method="PATCH")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert (await call(address, "/page/main.js", method="POST")).status == 405
    # A version that no stream can have.
    asked = log_pb2.ReadStreamRequest(stream_id="request-x", after_version=2**64 - 1)
    async with open_channel(place.world.gateway.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await log_pb2_grpc.EventLogServiceStub(channel).ReadStream(asked)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert from_rpc_error(caught.value).subject == "after_version"
