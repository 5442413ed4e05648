"""Two tenants of one stack that asks for keys: each works, and neither learns of the other."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from fastvideo import Client
from fastvideo.client import NewKey
from fastvideo.errors import FastVideoError, NotFound, PermissionDenied, Unauthenticated
from fastvideo.events.postgres import PostgresEventStore
from fastvideo.local.folder import DataFolder
from fastvideo.local.operator_key import read_operator_key
from tests.e2e.stack import READ_MAX, Stack, running_stack

openai = pytest.importorskip("openai")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore:The Sora API is scheduled:DeprecationWarning"),
]
MODEL = "moving-digits"
TOGETHER = 3


@pytest.fixture(scope="module")
def keyed() -> Iterator[Stack]:
    with running_stack(options=("--keys",)) as running:
        yield running


@pytest.fixture(scope="module")
def operator(keyed: Stack) -> Iterator[Client]:
    with Client(keyed.gateway, api_key=read_operator_key(keyed.data)) as client:
        yield client


def openai_of(keyed: Stack, key: str) -> Any:
    url = f"http://{keyed.address('gateway-http')}/v1"
    return openai.OpenAI(base_url=url, api_key=key, max_retries=0)


def refusal(work: Any) -> FastVideoError:
    with pytest.raises(FastVideoError) as caught:
        work()
    return caught.value


def as_user(keyed: Stack, new: NewKey, *arguments: str) -> str:
    """What a command says to somebody with another key."""
    mine = keyed.environment
    try:
        keyed.environment = {**mine, "FASTVIDEO_API_KEY": new.api_key}
        outcome = keyed.run(*arguments)
    finally:
        keyed.environment = mine
    return outcome.out + outcome.err


@pytest.mark.row("DEP-13")
def test_neither_sees_the_other_through_any_door(keyed: Stack, operator: Client) -> None:
    a, b = (operator.keys.create(name, tenant_id=name) for name in ("a", "b"))
    with ExitStack() as stack:
        mine, other = (stack.enter_context(openai_of(keyed, new.api_key)) for new in (a, b))
        theirs = stack.enter_context(Client(keyed.gateway, api_key=b.api_key))
        ours = stack.enter_context(Client(keyed.gateway, api_key=a.api_key))

        video = mine.videos.create_and_poll(prompt="a secret", model=MODEL, poll_interval_ms=100)
        assert video.status == "completed"
        assert mine.videos.download_content(video.id).read()[4:8] == b"ftyp"
        assert ours.get(video.id).spec.tenant_id == "a"
        artifact_id = ours.get(video.id).artifacts[0].artifact_id

        over_http: tuple[Any, ...] = (
            lambda: other.videos.retrieve(video.id),
            lambda: other.videos.download_content(video.id),
            lambda: other.videos.delete(video.id),
        )
        for work in over_http:
            with pytest.raises(openai.NotFoundError):
                work()
        assert list(other.videos.list()) == []
        for call in (
            lambda: theirs.get(video.id),
            lambda: theirs.cancel(video.id),
            lambda: theirs.explain(video.id),
            lambda: theirs.read_artifact(artifact_id),
        ):
            assert isinstance(refusal(call), NotFound)
        assert isinstance(refusal(lambda: theirs.keys.list()), PermissionDenied)

        # They share batches, and neither is named to the other.
        made = [
            (client.submit(f"a {n}", model_id=MODEL).spec.request_id, client)
            for n in range(TOGETHER)
            for client in (ours, theirs)
        ]
        for request_id, client in made:
            client.wait(request_id)
        foreign = {id_ for id_, client in made if client is ours}
        shared = 0
        for request_id, client in made:
            if client is theirs:
                told = client.explain(request_id)
                shared += sum(unit.shared_with_others for unit in told.units)
                assert not any(id_ in repr(told) for id_ in foreign)
        assert shared > 0


def test_the_command_line_has_the_stack_s_own_key_and_takes_another(keyed: Stack) -> None:
    folder = DataFolder(keyed.data)
    assert folder.operator_key.stat().st_mode & 0o777 == 0o600
    made = keyed.run("keys", "create", "ci", "--tenant", "cli", "--json")
    assert made.code == 0, made.err
    new = made.json
    listed = keyed.run("keys", "list", "--tenant", "cli", "--json").json
    assert [one["name"] for one in listed] == ["ci"]
    assert "api_key" not in listed[0]
    shown = keyed.run("tenants", "set", "cli", "--requests-per-minute", "9", "--json")
    assert shown.json["policy"]["requests_per_minute"] == 9
    key = NewKey(info=None, api_key=new["api_key"])  # type: ignore[arg-type]
    assert "only an operator's key" in as_user(keyed, key, "log", "stats")
    assert keyed.run("keys", "revoke", new["key_id"]).code == 0
    assert "revoked" in as_user(keyed, key, "models")
    with Client(keyed.gateway) as nobody:
        error = refusal(nobody.models)
        assert isinstance(error, Unauthenticated)
        assert error.reason == "KEY_REQUIRED"


async def test_no_secret_is_anywhere_but_in_its_file(keyed: Stack) -> None:
    made = keyed.run("keys", "create", "leaky", "--tenant", "leaky")
    key = made.out.strip()
    operator = read_operator_key(keyed.data)
    secrets = [text[-43:].encode() for text in (key, operator)]
    # Where it does not belong.
    new = NewKey(info=None, api_key=key)  # type: ignore[arg-type]
    assert key[-43:] not in as_user(keyed, new, "request", "get", key)
    with Client(keyed.gateway, api_key=key) as leaky:
        assert key[-43:] not in str(refusal(lambda: leaky.get_session(key)))
        leaky.list(session_id=key)
    with openai_of(keyed, key) as client:
        calls: tuple[Any, ...] = (
            lambda: client.videos.retrieve(key),
            lambda: client.videos.list(after=key),
            lambda: client.models.retrieve(key),
        )
        for work in calls:
            with pytest.raises(openai.APIStatusError) as caught:
                work()
            assert key[-43:] not in str(caught.value)
    folder = DataFolder(keyed.data)
    written = [*folder.logs.rglob("*"), *folder.traces.rglob("*")]
    for path in (*written, folder.state):
        if path.is_file():
            data = path.read_bytes()
            assert not any(secret in data for secret in secrets), path
    assert any(path.stat().st_size for path in written)
    store = await PostgresEventStore.open(keyed.postgres_dsn, connections_max=1)
    try:
        for partition in range(store.partition_count):
            offset = 0
            while page := await store.read_partition(partition, offset, READ_MAX):
                offset = page[-1].offset
                for stored in page:
                    data = stored.payload + stored.metadata + stored.event_id.encode()
                    assert not any(secret in data for secret in secrets), stored.type
    finally:
        await store.close()
