"""The JSON API over a real log: requests, their past, the log itself, replays, refusals."""

import asyncio
import socket
import time
from urllib.parse import quote

import pytest

from fastvideo.requests.events import (
    RequestCancelRequested,
    RequestCompleted,
    RequestProgressed,
    RequestStarted,
)
from fastvideo.requests.state import stream_of
from fastvideo.requests.types import RequestMetrics
from tests.integration.gateway.shards import Shard, run
from tests.integration.gateway.worlds import MODEL, World, gateway_config, world_of
from tests.plugins.http import Answer, call, messages
from tests.plugins.waiting import eventually

DONE = RequestCompleted(metrics=RequestMetrics(total_seconds=2.0, units=3))
JSON = {"Content-Type": "application/json"}


async def get(world: World, path: str, **options: object) -> Answer:
    return await call(world.gateway.http_address, path, **options)  # type: ignore[arg-type]


async def finished(world: World, prompt: str) -> str:
    request_id = await world.submit(prompt)
    progress = RequestProgressed(fraction=0.5, node_id="denoise", step=1, steps=2)
    await world.schedule(request_id, RequestStarted(attempt=1), progress, DONE)
    return request_id


async def test_requests_are_searched_page_by_page(world: World) -> None:
    ids = [await finished(world, f"a {colour} three") for colour in ("red", "blue", "red")]
    waiting = await world.submit("a red seven")
    answer = await get(world, "/api/requests?limit=3")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["cache-control"] == "no-store"
    first = answer.json
    assert [row["request_id"] for row in first["requests"]] == [waiting, ids[2], ids[1]]
    second = (await get(world, f"/api/requests?limit=3&cursor={first['next_cursor']}")).json
    assert [row["request_id"] for row in second["requests"]] == [ids[0]]
    assert second["next_cursor"] == ""

    async def found(query: str) -> list[str]:
        rows = (await get(world, f"/api/requests?{query}")).json["requests"]
        return [row["request_id"] for row in rows]

    assert await found("search=RED+three") == [ids[2], ids[0]]
    assert await found(f"search={ids[1]}") == [ids[1]]
    assert await found(f"search={MODEL}+seven") == [waiting]
    assert await found("search=%25") == []
    assert await found("status=accepted") == [waiting]
    assert await found(f"model={MODEL}&search=blue") == [ids[1]]
    assert await found("model=wan2.1-t2v-1.3b") == []
    row = (await get(world, "/api/requests?search=blue")).json["requests"][0]
    assert (row["prompt"], row["status"], row["version"]) == ("a blue three", "completed", 4)
    assert row["total_seconds"] == 2.0


async def test_one_request_its_explanation_events_and_past_states(world: World) -> None:
    request_id = await finished(world, "a red three")
    shard = Shard(world)
    run(shard, request_id, 3)
    await shard.write()
    path = f"/api/requests/{request_id}"
    whole = (await get(world, path)).json
    text = whole["state"]["spec"]["inputs"][0]
    assert (text["role"], text["text"]) == ("prompt", "a red three")
    assert whole["state"]["status"] == whole["request"]["status"] == "completed"

    told = (await get(world, f"{path}/explanation")).json
    assert told["explanation"]["headline"].startswith("completed after")
    assert [lane["name"] for lane in told["lanes"]] == ["denoise"]
    units = {bar["unit_id"] for bar in told["lanes"][0]["bars"] if bar["batch_id"]}
    assert units == {unit["unit_id"] for unit in told["explanation"]["units"]}

    page = (await get(world, f"{path}/events?after=1&limit=2")).json
    assert page["stream_version"] == 4
    assert [(row["version"], row["name"]) for row in page["events"]] == [
        (2, "request.started"),
        (3, "request.progress"),
    ]
    assert page["events"][1]["text"] == "denoise 1/2 · 50%"
    assert (await get(world, f"{path}/events/3")).json["event"]["payload"]["step"] == 1

    past = (await get(world, f"{path}/states/3")).json
    assert past["state"]["status"] == "running"
    assert past["differences"] == [
        {"path": "progress", "before": 0.0, "after": 0.5},
        {"path": "last_sequence", "before": 2, "after": 3},
    ]
    # Back and forth, from what is kept: the same answers.
    assert (await get(world, f"{path}/states/4")).json["state"]["status"] == "completed"
    assert (await get(world, f"{path}/states/3")).json == past

    place = quote(past["recorded_at"])
    assert (await get(world, f"{path}/place?before={place}")).json["version"] < 3


async def test_the_log_is_read_by_filter(world: World) -> None:
    request_id = await finished(world, "a red three")
    shard = Shard(world)
    run(shard, request_id, 2)
    await shard.write()
    await finished(world, "another one")
    names: list[str] = []
    cursor = ""
    while True:
        page = (
            await get(world, f"/api/events?request={request_id}&limit=3&cursor={quote(cursor)}")
        ).json
        names += [row["name"] for row in page["events"]]
        cursor = page["next_cursor"]
        if page["complete"]:
            break
    assert names.count("request.accepted") == 1
    assert names.count("trace.step") == 2
    assert {"trace.scheduler", "trace.loop", "request.completed"} < set(names)
    only = (await get(world, "/api/events?type=request.accepted&newest_first=true")).json["events"]
    assert [row["name"] for row in only] == ["request.accepted"] * 2
    where = f"{only[0]['partition']}/{only[0]['offset']}"
    event = (await get(world, f"/api/events/{where}")).json["event"]
    assert event["payload"]["spec"]["inputs"][0]["text"] == "another one"


@pytest.mark.parametrize(
    ("path", "status", "field"),
    [
        ("/api/requests?limit=100000", 400, "limit"),
        ("/api/requests?limit=many", 400, "limit"),
        ("/api/requests?status=done", 400, "status"),
        ("/api/requests?colour=red", 400, "colour"),
        ("/api/requests?search=a&search=b", 400, "search"),
        ("/api/requests?search=" + "a" * 201, 400, "search"),
        ("/api/requests?cursor=nonsense", 400, "cursor"),
        ("/api/requests/req_unknown", 404, "request_id"),
        ("/api/requests/req_unknown/explanation", 404, "request_id"),
        ("/api/requests/req_unknown/events", 404, "request_id"),
        ("/api/requests/req_unknown/states/1", 404, "request_id"),
        ("/api/requests/req_unknown/place?before=2026-01-01T00:00:00Z", 404, "request_id"),
        ("/api/requests/req_unknown/place?before=yesterday", 400, "before"),
        ("/api/requests/req_unknown/place", 400, "before"),
        ("/api/requests/" + "r" * 300, 400, "request_id"),
        ("/api/requests/{id}/states/0", 400, "version"),
        ("/api/requests/{id}/states/2", 400, "version"),
        ("/api/requests/{id}/states/99999999999999999999999", 400, "version"),
        ("/api/requests/{id}/events?limit=5000", 400, "limit"),
        ("/api/requests/{id}/events?after=-1", 400, "after"),
        ("/api/requests/{id}/live?after=7", 200, ""),
        ("/api/events?cursor=%5B1%5D", 400, "cursor"),
        ("/api/events?cursor=%7B%220%22%3AInfinity%7D", 400, "cursor"),
        ("/api/events?cursor=" + "1" * 5_000, 400, "cursor"),
        ("/api/events?type=nonsense", 400, "type"),
        ("/api/events/0/999999", 404, "offset"),
        ("/api/nothing", 404, "path"),
    ],
)
async def test_what_is_wrong_is_named(world: World, path: str, status: int, field: str) -> None:
    request_id = await world.submit()
    answer = await get(world, path.replace("{id}", request_id))
    assert answer.status == status
    if status == 200:
        (event, told), *_ = messages(answer.body)
        assert (event, told["error"]["field"]) == ("error", "after_sequence")
    else:
        assert answer.error["field"] == field
        assert answer.error["reason"]
        assert answer.error["message"]


async def test_artifacts_that_nobody_serves_are_unavailable(world: World) -> None:
    answer = await get(world, "/api/artifacts/art_1/content")
    assert (answer.status, answer.error["reason"]) == (503, "UNAVAILABLE")


async def test_bodies_and_hosts_that_are_not_meant_are_refused(world: World) -> None:
    ask = {"method": "POST", "body": b'{"kind": "state"}'}
    wrong_type = await get(world, "/api/replays", headers={"Content-Type": "text/plain"}, **ask)
    assert (wrong_type.status, wrong_type.error["field"]) == (400, "Content-Type")
    no_kind = await get(world, "/api/replays", method="POST", body=b"{}", headers=JSON)
    assert (no_kind.status, no_kind.error["field"]) == (400, "kind")
    large = b'{"kind": "state", "policy": "' + b"a" * 300_000 + b'"}'
    too_large = await get(world, "/api/replays", method="POST", body=large, headers=JSON)
    assert (too_large.status, too_large.error["reason"]) == (413, "BODY_TOO_LARGE")
    elsewhere = await get(world, "/api/requests", headers={"Host": "evil.example:80"})
    assert (elsewhere.status, elsewhere.error["field"]) == (421, "Host")
    assert (await get(world, "/api/requests", method="DELETE")).status == 405
    assert (await get(world, "/health/live", headers={"Host": "evil.example"})).status == 200


async def test_every_answer_is_guarded_and_the_page_lets_nothing_else_in(world: World) -> None:
    page = await get(world, "/")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    for path in ("/", "/requests/req_1", "/page/main.js", "/page/tokens.css", "/api/requests"):
        answer = await get(world, path)
        assert answer.status == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
    assert b"style=" not in page.body
    assert b"//" not in page.body.replace(b"<!doctype", b"")
    assert (await get(world, "/page/../app.py")).status == 404
    assert (await get(world, "/page/%2e%2e/app.py")).status == 404


async def test_a_video_is_not_watched_from_behind_its_end(world: World) -> None:
    request_id = await world.submit()
    path, headers = f"/v1/videos/{request_id}/events", {"Last-Event-ID": "7"}
    answer = await get(world, path, headers=headers)
    assert (answer.status, answer.error["param"]) == (400, "Last-Event-ID")
    assert answer.error["message"] == "Last-Event-ID is '7'; allowed: 0 to 1"


async def test_a_replay_tells_its_comparisons_and_its_report(world: World) -> None:
    request_id = await finished(world, "a red three")
    body = f'{{"kind": "state", "subject_id": "{request_id}"}}'.encode()
    answer = await get(world, "/api/replays", method="POST", body=body, headers=JSON)
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = messages(answer.body)
    assert told[-1][0] == "report"
    assert told[-1][1]["equal"] is True
    comparisons = [value for event, value in told if event == "comparison"]
    assert comparisons
    assert all(value["equal"] for value in comparisons)
    unknown = b'{"kind": "state", "subject_id": "req_unknown"}'
    refused = await get(world, "/api/replays", method="POST", body=unknown, headers=JSON)
    (event, value), *_ = messages(refused.body)
    assert (event, value["error"]["reason"]) == ("error", "NOT_FOUND")


async def lines_until(reader: asyncio.StreamReader, wanted: bytes) -> bytes:
    seen = b""
    async with asyncio.timeout(30):
        while wanted not in seen:
            read = await reader.read(65_536)
            assert read, seen
            seen += read
    return seen


async def open_stream(world: World, path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = world.gateway.http_address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return reader, writer


def _body(seen: bytes) -> bytes:
    """What came in chunks, without the sizes between them."""
    lines = seen.partition(b"\r\n\r\n")[2].split(b"\r\n")
    return b"".join(lines[1::2])


@pytest.mark.row("REQ-07")
async def test_what_changes_is_told_as_it_changes(world: World) -> None:
    reader, writer = await open_stream(world, "/api/live")
    await lines_until(reader, b": open")
    request_id = await world.submit("a live three")
    seen = await lines_until(reader, b'"status":"accepted"')
    assert request_id.encode() in seen
    await world.schedule(request_id, RequestStarted(attempt=1), DONE)
    await lines_until(reader, b'"status":"completed"')
    writer.close()

    watching, other = await open_stream(world, f"/api/requests/{request_id}/live?after=1")
    watched = await lines_until(watching, b"event: end")
    told = [value["version"] for event, value in messages(_body(watched)) if event == "event"]
    assert told == [2, 3]
    other.close()
    await eventually(lambda: _no_watchers(world))


async def _no_watchers(world: World) -> bool:
    return world.gateway.core.parts.watches.watcher_count == 0


async def test_a_stop_ends_streams_at_once(postgres_dsn: str) -> None:
    async with world_of(gateway_config(postgres_dsn)) as world:
        reader, writer = await open_stream(world, "/api/live")
        await lines_until(reader, b": open")
        began = time.monotonic()
    assert time.monotonic() - began < 20.0
    rest = await asyncio.wait_for(reader.read(), 30.0)
    assert b"event: error" not in rest
    writer.close()


async def test_a_stop_ends_no_request_that_a_caller_waits_for(postgres_dsn: str) -> None:
    body = b'{"prompt": "a red three", "model": "moving-digits"}'
    streamed = {**JSON, "Accept": "text/event-stream"}

    async def stands(world: World) -> list[str]:
        listed = (await get(world, "/v1/videos")).json["data"]
        return [one["status"] for one in listed]

    async with world_of(gateway_config(postgres_dsn)) as world:
        waits = [
            asyncio.create_task(
                get(world, "/v1/videos/sync", method="POST", body=body, headers=headers)
            )
            for headers in (JSON, streamed)
        ]

        async def made() -> bool:
            return len(await stands(world)) == 2

        await eventually(made, timeout_s=30)
        listed = (await get(world, "/v1/videos")).json["data"]
        began = time.monotonic()
    assert time.monotonic() - began < 20.0
    waited, told = await asyncio.gather(*waits)
    assert (waited.status, waited.error["code"]) == (503, "gateway_stops")
    assert waited.headers["retry-after"] == "1"
    # Without a key that is what its caller has of it.
    named = [one["id"] for one in listed if f"/v1/videos/{one['id']}" in waited.error["message"]]
    assert len(named) == 1
    assert told.status == 200
    async with world_of(gateway_config(postgres_dsn)) as again:
        assert await stands(again) == ["queued", "queued"]


async def test_a_stop_is_told_to_who_waits_for_an_end(postgres_dsn: str) -> None:
    async with world_of(gateway_config(postgres_dsn)) as world:
        first, second = [await world.submit() for _ in range(2)]
        waits = [
            asyncio.create_task(get(world, f"/v1/videos/{first}", method="DELETE")),
            asyncio.create_task(get(world, f"/v1/videos/{second}/cancel", method="POST")),
        ]

        async def asked() -> bool:
            streams = [await world.log.read_stream(stream_of(one)) for one in (first, second)]
            return all(
                any(event.type == RequestCancelRequested.__name__ for event in stream)
                for stream in streams
            )

        await eventually(asked, timeout_s=30)
    for answer in await asyncio.gather(*waits):
        assert (answer.status, answer.error["code"]) == (503, "gateway_stops")


async def test_an_address_that_is_taken_is_named(postgres_dsn: str) -> None:
    from dataclasses import replace

    from fastvideo.errors import Unavailable

    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = replace(gateway_config(postgres_dsn), http_listen=address)
        with pytest.raises(Unavailable, match=address):
            async with world_of(config):
                pass
