"""How the gateway is told who may come in, and what its door says before it knows anybody."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fastvideo.clock import ManualClock
from fastvideo.errors import InvalidField, ResourceExhausted, Unauthenticated, Unavailable
from fastvideo.events.catalog import new_event
from fastvideo.events.memory import MemoryEventStore
from fastvideo.events.records import AppendCommand, DamagedEvent, StoredEvent, StreamAppend
from fastvideo.events.types import EventMetadata
from fastvideo.requests.tenants import ApiKeyCreated, ApiKeyRevoked
from fastvideo.rpc.api_keys import ApiToken, bearer_of
from fastvideo.rpc.identity import Role
from fastvideo_gateway.access import door as door_module
from fastvideo_gateway.access.config import AccessConfig, Auth, access_of
from fastvideo_gateway.access.directory import TenantDirectory
from fastvideo_gateway.access.door import AdminKey, KeyDoor, OpenDoor
from tests.plugins.waiting import eventually

NOW = datetime(2026, 5, 1, tzinfo=UTC)
CLOCK = ManualClock(NOW)


@pytest.mark.parametrize("listen", ["0.0.0.0:50051", "10.0.0.7:80", "[::]:80", "gateway:80", ":80"])
def test_an_open_gateway_listens_on_this_machine_alone(listen: str) -> None:
    for listens in ((listen, ""), ("127.0.0.1:50051", listen)):
        with pytest.raises(InvalidField) as caught:
            access_of("", None, listens)
        assert caught.value.field == "FASTVIDEO_AUTH"
        assert "FASTVIDEO_ADMIN_KEY_FILE" in caught.value.message
        assert access_of("keys", None, listens).auth is Auth.KEYS
    assert access_of("open", None, ("localhost:1", "[::1]:2")).auth is Auth.OPEN
    with pytest.raises(InvalidField):
        access_of("closed", None, ())


def test_an_open_gateway_has_one_tenant_and_others_have_shares() -> None:
    assert access_of("open", None, (), 0.25).share == 1.0
    assert access_of("keys", None, (), 0.25).share == 0.25
    for share in (0.0, 1.1):
        with pytest.raises(InvalidField, match="FASTVIDEO_TENANT_SHARE"):
            access_of("keys", None, (), share)


@pytest.mark.parametrize("content", ["", "secret", f"fv_admin_{'x' * 42}", "fv_a\nfv_b"])
def test_a_file_without_a_key_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    path = tmp_path / "admin.key"
    path.write_text(content)
    with pytest.raises(InvalidField) as caught:
        AccessConfig(Auth.KEYS, path).door(TenantDirectory(MemoryEventStore()), CLOCK)
    assert caught.value.field == "FASTVIDEO_ADMIN_KEY_FILE"
    assert not content or content not in caught.value.message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidField, match="can be read"):
        AccessConfig(Auth.KEYS, tmp_path / "none").door(TenantDirectory(MemoryEventStore()), CLOCK)


def test_a_door_that_has_not_read_the_log_lets_nobody_of_it_in() -> None:
    door = KeyDoor(TenantDirectory(MemoryEventStore()), None, CLOCK)
    with pytest.raises(Unavailable):
        door.caller_of(ApiToken.new("ak_1").text)
    with pytest.raises(Unauthenticated):
        door.caller_of("")


def test_an_open_door_lets_everybody_in_as_an_operator() -> None:
    caller = OpenDoor().caller_of("whatever")
    assert (caller.tenant_id, caller.role, caller.key_id) == ("default", Role.OPERATOR, "")


async def test_the_directory_knows_what_was_there_and_what_comes() -> None:
    log = MemoryEventStore(4)
    tokens = [ApiToken.new(f"ak_{i}") for i in range(3)]

    async def create(token: ApiToken, tenant_id: str) -> None:
        payload = ApiKeyCreated(
            key_id=token.key_id,
            tenant_id=tenant_id,
            role="user",
            secret_sha256=token.secret_sha256,
        )
        about = EventMetadata(tenant_id=tenant_id, occurred_at=NOW)
        event = new_event(f"evt_{token.key_id}", payload, about)
        await log.append(AppendCommand((StreamAppend(f"tenant-{tenant_id}", (event,)),)))

    await create(tokens[0], "a")
    await create(tokens[1], "b")
    directory = TenantDirectory(log)
    following = asyncio.create_task(directory.run())
    try:
        assert await directory.reached("b", 1, 30)
        await create(tokens[2], "b")
        assert await directory.reached("b", 2, 30)
        door = KeyDoor(directory, None, CLOCK)
        assert [door.caller_of(token.text).tenant_id for token in tokens] == ["a", "b", "b"]
        assert directory.tenant_ids == ("a", "b")
        assert not await directory.reached("c", 1, 0.01)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


@pytest.mark.parametrize(
    "unreadable",
    [{"schema_version": 99}, {"payload": b"\xff"}, {"metadata": b"\xff"}],
    ids=["newer", "payload", "metadata"],
)
async def test_a_tenant_of_whom_something_cannot_be_read_may_do_nothing_here(
    unreadable: dict[str, Any],
) -> None:
    log = MemoryEventStore(4)
    tokens = {name: ApiToken.new(f"ak_{name}") for name in ("a", "b")}
    for name, token in tokens.items():
        payload = ApiKeyCreated(
            key_id=token.key_id,
            tenant_id=name,
            role="user",
            secret_sha256=token.secret_sha256,
        )
        about = EventMetadata(tenant_id=name, occurred_at=NOW)
        event = new_event(f"evt_{name}", payload, about)
        await log.append(AppendCommand((StreamAppend(f"tenant-{name}", (event,)),)))
    directory = TenantDirectory(log)
    door = KeyDoor(directory, None, CLOCK)
    following = asyncio.create_task(directory.run())
    try:
        assert await directory.until_loaded(30)

        async def running(name: str) -> None:
            shown = {"authorization": f"Bearer {tokens[name].text}"}
            async with door.entering(shown):
                entered.set()
                await asyncio.Event().wait()

        entered = asyncio.Event()
        call = asyncio.create_task(running("a"))
        async with asyncio.timeout(30):
            await entered.wait()
        # A revocation, for all that this program can tell.
        event = replace(event, event_id="evt_new", type="ApiKeyRevoked", **unreadable)
        await log.append(AppendCommand((StreamAppend("tenant-a", (event,)),)))
        async with asyncio.timeout(30):
            with pytest.raises(Unavailable) as caught:
                await call
        assert caught.value.reason == "TENANT_UNREADABLE"
        with pytest.raises(Unavailable):
            door.caller_of(tokens["a"].text)
        with pytest.raises(Unavailable):
            directory.policy_of("a")
        assert door.caller_of(tokens["b"].text).tenant_id == "b"
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
    # One that starts later knows no more.
    late = TenantDirectory(log)
    following = asyncio.create_task(late.run())
    try:
        assert await late.until_loaded(30)
        with pytest.raises(Unavailable):
            KeyDoor(late, None, CLOCK).caller_of(tokens["a"].text)
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


class _DamagedLog(MemoryEventStore):
    """Refuses to give a damaged event, as the database's adapter does."""

    async def read_stream(
        self, stream_id: str, after_version: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        return _whole(await super().read_stream(stream_id, after_version, limit))

    async def read_partition(
        self, partition: int, after_offset: int = 0, limit: int = 1000
    ) -> tuple[StoredEvent, ...]:
        return _whole(await super().read_partition(partition, after_offset, limit))


async def _is_refused(directory: TenantDirectory, tenant_id: str) -> bool:
    try:
        directory.policy_of(tenant_id)
    except Unavailable:
        return True
    return False


def _whole(events: tuple[StoredEvent, ...]) -> tuple[StoredEvent, ...]:
    for stored in events:
        if stored.type == "Damaged":
            raise DamagedEvent(stored)
    return events


async def test_a_damaged_event_locks_out_its_tenant_alone() -> None:
    log = _DamagedLog(1)

    async def append(tenant_id: str, payload: ApiKeyCreated | ApiKeyRevoked) -> None:
        about = EventMetadata(tenant_id=tenant_id, occurred_at=NOW)
        event = new_event(f"evt_{tenant_id}_{type(payload).__name__}", payload, about)
        if tenant_id == "a":
            event = replace(event, type="Damaged")
        await log.append(AppendCommand((StreamAppend(f"tenant-{tenant_id}", (event,)),)))

    token = ApiToken.new("ak_b")
    key = ApiKeyCreated(
        key_id=token.key_id, tenant_id="b", role="user", secret_sha256=token.secret_sha256
    )
    await append("b", key)
    running, late = TenantDirectory(log), TenantDirectory(log)
    async with asyncio.TaskGroup() as group:
        following = [group.create_task(running.run())]
        assert await running.until_loaded(30)
        await append("a", replace(key, tenant_id="a"))
        following.append(group.create_task(late.run()))
        assert await late.until_loaded(30)
        # Behind the damage, in its partition.
        await append("b", ApiKeyRevoked(key_id=token.key_id, tenant_id="b"))
        for directory in (running, late):
            assert await directory.reached("b", 2, 30)
            with pytest.raises(Unauthenticated):
                KeyDoor(directory, None, CLOCK).caller_of(token.text)
            await eventually(partial(_is_refused, directory, "a"))
        for task in following:
            task.cancel()


async def test_a_tenant_has_its_share_of_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "CONCURRENT_RPCS_MAX", 4)
    key = ApiToken.new("ak_admin")
    door = KeyDoor(
        TenantDirectory(MemoryEventStore()),
        AdminKey(key.key_id, key.secret_sha256),
        CLOCK,
        share=0.5,
    )
    door._directory._loaded = True
    shown = {"authorization": f"Bearer {key.text}"}
    async with door.entering(shown), door.entering(shown):
        with pytest.raises(ResourceExhausted, match="tenant default has 2 calls"):
            async with door.entering(shown):
                raise AssertionError
    async with door.entering(shown):
        pass


def test_a_key_is_its_id_and_its_secret_and_shows_the_secret_to_nobody() -> None:
    token = ApiToken.new("ak_01jd_with-all_of_it")
    assert ApiToken.parse(token.text) == token
    assert len(token.secret) == 43
    assert token.secret not in repr(token)
    assert token.opens(token.secret_sha256)
    assert not token.opens(ApiToken.new("ak_1").secret_sha256)
    assert not token.opens("é")
    for text in ("", "fv_", token.text[:-1], token.text + "=", f" {token.text}", token.text[3:]):
        assert ApiToken.parse(text) is None


def test_a_bearer_is_what_follows_the_scheme() -> None:
    assert bearer_of("Bearer abc") == bearer_of("bearer  abc ") == "abc"
    assert bearer_of("Basic abc") == bearer_of("abc") == bearer_of("") == ""
