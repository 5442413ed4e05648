"""What every bus does."""

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

import pytest

from fastvideo.bus import Bus, BusConsumer, BusMessage, Delivery
from fastvideo.bus.memory import MemoryBus
from fastvideo.bus.nats import NatsBus, NatsBusConfig
from fastvideo.bus.port import subject_matches
from fastvideo.errors import Unavailable
from tests.plugins.waiting import eventually


@dataclass(frozen=True)
class World:
    bus: Bus
    # Root of this test's subjects.
    root: str
    # What another process has.
    elsewhere: Bus

    def message(
        self, subject: str = "0.ThingHappened", message_id: str | None = None
    ) -> BusMessage:
        return BusMessage(
            f"{self.root}.{subject}",
            subject.encode(),
            message_id or secrets.token_hex(4),
            {"Fastvideo-Event-Id": "evt_1"},
        )

    async def consumer(self, *subjects: str, ack_wait_s: float = 30.0) -> BusConsumer:
        wanted = [f"{self.root}.{subject}" for subject in subjects or (">",)]
        return await self.bus.consumer(f"{self.root}-consumer", *wanted, ack_wait_s=ack_wait_s)


@pytest.fixture(params=["memory", "nats"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    root = f"test{secrets.token_hex(4)}"
    if request.param == "memory":
        memory = MemoryBus()
        yield World(memory, root, memory)
        return
    url = request.getfixturevalue("nats_url")
    bus = NatsBus.open(NatsBusConfig(url, stream=root.upper(), subjects=f"{root}.>"))
    await bus.wait_connected(30.0)
    assert await bus.last_message_id(f"{root}.>") is None
    elsewhere = NatsBus.open(NatsBusConfig(url))
    await elsewhere.wait_connected(30.0)
    yield World(bus, root, elsewhere)
    await bus.close()
    await elsewhere.close()


async def fetch_all(consumer: BusConsumer, count: int) -> list[Delivery]:
    deadline = time.monotonic() + 30.0
    found: list[Delivery] = []
    while len(found) < count and time.monotonic() < deadline:
        found.extend(await consumer.fetch(10, 0.5))
    return found


async def settled(
    consumer: BusConsumer, deliveries: Sequence[Delivery], *, sure: bool = True
) -> None:
    """Acknowledge, until nothing comes again; on a busy machine it may have come before."""

    async def nothing_comes() -> bool:
        nonlocal deliveries
        for delivery in deliveries:
            await (delivery.ack() if sure else delivery.ack_unsure())
        deliveries = await consumer.fetch(10, 1.0)
        return not deliveries

    await eventually(nothing_comes)


def ids(deliveries: Sequence[Delivery]) -> list[str]:
    return [delivery.message.message_id for delivery in deliveries]


async def test_messages_come_in_order_with_all_they_carry(world: World) -> None:
    sent = [world.message(f"{i % 3}.ThingHappened") for i in range(25)]
    for message in sent:
        await world.bus.publish(message)
    got = await fetch_all(await world.consumer(), len(sent))
    assert ids(got) == [message.message_id for message in sent]
    assert [d.message.subject for d in got] == [m.subject for m in sent]
    assert [d.message.data for d in got] == [m.data for m in sent]
    assert got[0].message.headers["Fastvideo-Event-Id"] == "evt_1"
    assert {d.times for d in got} == {1}


async def test_publishing_a_message_again_adds_nothing(world: World) -> None:
    message = world.message()
    for _ in range(5):
        await world.bus.publish(message)
    consumer = await world.consumer()
    assert ids(await fetch_all(consumer, 1)) == [message.message_id]
    assert not await consumer.fetch(10, 0.1)


async def test_messages_published_together_keep_their_order(world: World) -> None:
    sent = [world.message() for _ in range(100)]
    await world.bus.publish(*sent, *sent[:3])
    got = await fetch_all(await world.consumer(), len(sent))
    assert ids(got) == [message.message_id for message in sent]


async def test_what_could_not_be_sent_takes_no_place_from_what_can_be(nats_url: str) -> None:
    root = f"test{secrets.token_hex(4)}"
    bus = NatsBus.open(NatsBusConfig(nats_url, stream=root.upper(), subjects=f"{root}.>"))
    await bus.wait_connected(30.0)
    await bus.incarnation()
    too_large = BusMessage(f"{root}.0", bytes(2 << 20), "large")
    # More than the client awaits at a time.
    for _ in range(4_001):
        with pytest.raises(Unavailable):
            await bus.publish(too_large)
    await bus.publish(BusMessage(f"{root}.0", b"small", "small"))
    assert await bus.last_message_id(f"{root}.0") == "small"
    await bus.close()


async def test_a_consumer_keeps_its_place(world: World) -> None:
    sent = [world.message() for _ in range(4)]
    for message in sent:
        await world.bus.publish(message)
    first = await (await world.consumer()).fetch(2, 30.0)
    assert first
    for delivery in first:
        await delivery.ack()
    rest = await fetch_all(await world.consumer(), 4 - len(first))
    assert ids([*first, *rest]) == [message.message_id for message in sent]


async def test_a_message_without_ack_comes_again(world: World) -> None:
    await world.bus.publish(world.message())
    consumer = await world.consumer(ack_wait_s=0.3)
    first = await fetch_all(consumer, 1)
    second = await fetch_all(consumer, 1)
    assert ids(first) == ids(second)
    assert second[0].times > first[0].times
    await settled(consumer, second)


async def test_an_ack_without_an_answer_settles_too(world: World) -> None:
    await world.bus.publish(world.message())
    consumer = await world.consumer(ack_wait_s=0.5)
    await settled(consumer, await fetch_all(consumer, 1), sure=False)


async def test_a_refused_message_comes_again(world: World) -> None:
    await world.bus.publish(world.message())
    consumer = await world.consumer()
    (first,) = await fetch_all(consumer, 1)
    await first.nak(0.05)
    (second,) = await fetch_all(consumer, 1)
    assert second.times == 2
    await second.ack()


async def test_a_consumer_gets_what_matches_its_subject(world: World) -> None:
    sent = [world.message(f"{i % 2}.ThingHappened") for i in range(6)]
    for message in sent:
        await world.bus.publish(message)
    got = await fetch_all(await world.consumer("1.>"), 3)
    assert ids(got) == [message.message_id for message in sent[1::2]]


async def test_a_consumer_gets_what_matches_one_of_its_subjects(world: World) -> None:
    sent = [world.message(f"0.Thing{i % 4}") for i in range(12)]
    for message in sent:
        await world.bus.publish(message)
    got = await fetch_all(await world.consumer("*.Thing1", "*.Thing3"), 6)
    assert ids(got) == [message.message_id for message in sent[1::2]]


async def test_a_consumer_of_other_subjects_keeps_its_place(world: World) -> None:
    sent = [world.message(f"0.Thing{i % 2}") for i in range(8)]
    for message in sent[:4]:
        await world.bus.publish(message)
    for delivery in await fetch_all(await world.consumer(), 4):
        await delivery.ack()
    for message in sent[4:]:
        await world.bus.publish(message)
    got = await fetch_all(await world.consumer("0.Thing1"), 2)
    assert ids(got) == [message.message_id for message in sent[5::2]]


async def test_the_last_message_of_a_subject_is_known(world: World) -> None:
    assert await world.bus.last_message_id(f"{world.root}.0.>") is None
    sent = [world.message(f"{i % 2}.Thing{i}") for i in range(6)]
    for message in sent:
        await world.bus.publish(message)
    assert await world.bus.last_message_id(f"{world.root}.0.>") == sent[4].message_id
    assert await world.bus.last_message_id(f"{world.root}.1.>") == sent[5].message_id
    assert await world.bus.last_message_id(f"{world.root}.2.>") is None


async def test_a_hint_reaches_whoever_listens_elsewhere(world: World) -> None:
    heard: list[str] = []
    await world.bus.hint("hints.before")
    await world.elsewhere.listen(f"hints-{world.root}.*", heard.append)

    async def was_heard() -> bool:
        # The one who listens may have been heard of later than the first of these.
        await world.bus.hint(f"hints-{world.root}.7")
        return bool(heard)

    await eventually(was_heard)
    assert set(heard) == {f"hints-{world.root}.7"}


@pytest.mark.parametrize(
    ("pattern", "subject", "expected"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.>", "a.b.c", True),
        ("a.>", "a", False),
        ("a.*.c", "a.b.c", True),
        ("a", "a.b", False),
    ],
)
def test_patterns(pattern: str, subject: str, expected: bool) -> None:
    assert subject_matches(pattern, subject) is expected


async def test_the_bounds_of_a_nats_stream_follow_the_configuration(nats_url: str) -> None:
    root = f"test{secrets.token_hex(4)}"
    config = NatsBusConfig(nats_url, stream=root.upper(), subjects=f"{root}.>")
    incarnations = []
    for bytes_max in (1 << 20, 1 << 21, 1 << 21):
        bus = NatsBus.open(replace(config, bytes_max=bytes_max))
        await bus.wait_connected(30.0)
        incarnations.append(await bus.incarnation())
        await bus.publish(BusMessage(f"{root}.0.Thing", b"", str(bytes_max)))
        await bus.close()
    assert len(set(incarnations)) == 1
