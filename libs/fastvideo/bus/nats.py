"""The bus on NATS JetStream.

It connects in the background and reconnects for ever, so that a service starts and runs while
NATS is away; calls then raise Unavailable.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import (
    AckPolicy,
    ConsumerConfig,
    DeliverPolicy,
    Header,
    PubAck,
    RetentionPolicy,
    StorageType,
    StreamConfig,
    StreamInfo,
)

from fastvideo.bus.port import BusMessage, OnHint
from fastvideo.errors import Unavailable
from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NatsBusConfig:
    """The stream and its bounds."""

    url: str
    stream: str = "FASTVIDEO_EVENTS"
    subjects: str = "fastvideo.events.>"
    bytes_max: int = 1 << 30
    retention_s: float = 7 * 86400.0
    deduplication_window_s: float = 120.0
    replicas: int = 1
    call_timeout_s: float = 5.0
    reconnect_wait_s: float = 0.25


class NatsBus:
    """A `Bus` on NATS. Make it with `open`."""

    def __init__(self, config: NatsBusConfig) -> None:
        self._config = config
        self._client = Client()
        self._js = JetStreamContext(
            self._client,
            timeout=config.call_timeout_s,
            # Whoever publishes bounds itself. The client's own bound also counts, for ever, what
            # could not be sent, and who waits at it cannot be cancelled.
            publish_async_max_pending=sys.maxsize,
        )
        self._connections = 0
        self._connected = asyncio.Event()
        self._connecting: asyncio.Task[None] | None = None
        self._listeners: list[tuple[str, OnHint]] = []

    @classmethod
    def open(cls, config: NatsBusConfig) -> "NatsBus":
        """A bus that begins to connect. Must be called inside the event loop."""
        bus = cls(config)
        bus._connecting = asyncio.create_task(bus._connect(), name="nats-connect")
        return bus

    @property
    def connections(self) -> int:
        return self._connections

    @property
    def connected(self) -> bool:
        return self._connected.is_set()

    @property
    def retention_s(self) -> float:
        return self._config.retention_s

    async def wait_connected(self, timeout_s: float) -> None:
        """Wait until NATS answers. Raises Unavailable when it does not in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._connected.wait()
        except TimeoutError as error:
            raise Unavailable(f"NATS does not answer in {timeout_s} s", subject="nats") from error

    async def publish(self, *messages: BusMessage) -> None:
        await self.call(lambda: self._publish(messages))

    async def _publish(self, messages: Sequence[BusMessage]) -> None:
        acknowledged: list[asyncio.Future[PubAck]] = []
        try:
            for message in messages:
                headers = {**message.headers, Header.MSG_ID.value: message.message_id}
                acknowledged.append(
                    await self._js.publish_async(
                        message.subject, message.data, stream=self._config.stream, headers=headers
                    )
                )
            for answer in await asyncio.gather(*acknowledged, return_exceptions=True):
                if isinstance(answer, BaseException):
                    raise answer
        finally:
            # The client keeps a place for each that is awaited.
            for answered in acknowledged:
                answered.cancel()

    async def incarnation(self) -> str:
        return str((await self._ensure_stream()).created)

    async def last_message_id(self, subject: str) -> str | None:
        await self._ensure_stream()
        try:
            message = await self.call(lambda: self._js.get_last_msg(self._config.stream, subject))
        except Unavailable as error:
            if isinstance(error.__cause__, nats.js.errors.NotFoundError):
                return None
            raise
        return (message.headers or {}).get(Header.MSG_ID.value)

    async def consumer(self, name: str, *subjects: str, ack_wait_s: float) -> "NatsConsumer":
        return NatsConsumer(self, name, subjects, ack_wait_s)

    async def hint(self, subject: str) -> None:
        if not self._client.is_connected:
            return
        try:
            await self._client.publish(subject)
        except nats.errors.Error as error:
            _LOG.debug("hint not sent", subject=subject, error=str(error))

    async def listen(self, subject: str, on_hint: OnHint) -> None:
        self._listeners.append((subject, on_hint))
        if self._client.is_connected:
            await self.call(lambda: self._subscribe(subject, on_hint))

    async def close(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.gather(self._connecting, return_exceptions=True)
        if not self._client.is_closed:
            await self._client.close()

    async def pull(
        self, name: str, subjects: Sequence[str], ack_wait_s: float
    ) -> JetStreamContext.PullSubscription:
        """A subscription to a durable consumer; stream and consumer are made when missing."""
        await self._ensure_stream()
        config = ConsumerConfig(
            durable_name=name,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ack_wait_s,
            deliver_policy=DeliverPolicy.ALL,
            max_deliver=-1,
            filter_subjects=list(subjects),
        )
        # One that is there keeps its place and takes over what differs.
        await self.call(lambda: self._js.add_consumer(self._config.stream, config))
        return await self.call(
            lambda: self._js.pull_subscribe_bind(durable=name, stream=self._config.stream)
        )

    async def _connect(self) -> None:
        # Without a limit on attempts the client tries for ever, now and after every loss.
        await self._client.connect(
            servers=[self._config.url],
            connect_timeout=2,
            # Fractions of a second work, whatever the annotation says.
            reconnect_time_wait=self._config.reconnect_wait_s,  # type: ignore[arg-type]
            max_reconnect_attempts=-1,
            ping_interval=5,
            max_outstanding_pings=2,
            # Whoever hints has told itself.
            no_echo=True,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_connected,
        )
        for subject, on_hint in self._listeners:
            await self._subscribe(subject, on_hint)
        await self._on_connected()

    async def _on_connected(self) -> None:
        self._connections += 1
        self._connected.set()
        _LOG.info("bus connected", connections=self._connections)

    async def _on_disconnected(self) -> None:
        self._connected.clear()
        _LOG.warning("bus disconnected")

    async def _on_error(self, error: Exception) -> None:
        # While NATS is away every attempt to connect fails; that it is away is known.
        if self._client.is_connected:
            _LOG.warning("bus error", error=str(error) or type(error).__name__)

    async def _subscribe(self, subject: str, on_hint: OnHint) -> None:
        async def callback(message: Msg) -> None:
            on_hint(message.subject)

        await self._client.subscribe(subject, cb=callback)

    async def _ensure_stream(self) -> StreamInfo:
        config = StreamConfig(
            name=self._config.stream,
            subjects=[self._config.subjects],
            retention=RetentionPolicy.LIMITS,
            storage=StorageType.FILE,
            max_bytes=self._config.bytes_max,
            max_age=self._config.retention_s,
            duplicate_window=self._config.deduplication_window_s,
            num_replicas=self._config.replicas,
        )
        try:
            found = await self.call(lambda: self._js.stream_info(self._config.stream))
        except Unavailable as error:
            if not isinstance(error.__cause__, nats.js.errors.NotFoundError):
                raise
            _LOG.info("bus stream made", stream=self._config.stream)
            return await self.call(lambda: self._js.add_stream(config))
        bounds = (found.config.max_bytes, found.config.max_age, found.config.duplicate_window)
        if bounds != (config.max_bytes, config.max_age, config.duplicate_window):
            return await self.call(lambda: self._js.update_stream(config))
        return found

    async def call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call to NATS; its errors come out as Unavailable, at once while it is away."""
        if not self._client.is_connected:
            raise Unavailable("NATS is away", subject="nats")
        try:
            # A call that is under way when the connection breaks would wait for the next one.
            async with asyncio.timeout(self._config.call_timeout_s):
                return await call()
        except (nats.errors.Error, TimeoutError, OSError, json.JSONDecodeError) as error:
            raise Unavailable(
                f"NATS: {str(error) or type(error).__name__}", subject="nats"
            ) from error


class NatsConsumer:
    """A durable pull consumer. It is made again when NATS lost it."""

    def __init__(self, bus: NatsBus, name: str, subjects: Sequence[str], ack_wait_s: float) -> None:
        self._bus = bus
        self._name = name
        self._subjects = subjects
        self._ack_wait_s = ack_wait_s
        self._pull: JetStreamContext.PullSubscription | None = None
        self._connections = 0

    async def fetch(self, limit: int, timeout_s: float) -> Sequence["NatsDelivery"]:
        pull = await self._subscription()
        try:
            messages = await pull.fetch(limit, timeout_s)
        except TimeoutError:
            return ()
        except (nats.errors.Error, OSError) as error:
            await self._forget()
            raise Unavailable(f"NATS: {error}", subject="nats") from error
        return [NatsDelivery(self._bus, message) for message in messages]

    async def _subscription(self) -> JetStreamContext.PullSubscription:
        connections = self._bus.connections
        if self._pull is not None and connections == self._connections:
            return self._pull
        await self._forget()
        pull = await self._bus.pull(self._name, self._subjects, self._ack_wait_s)
        self._pull, self._connections = pull, connections
        return pull

    async def _forget(self) -> None:
        pull, self._pull = self._pull, None
        if pull is None:
            return
        try:
            await pull.unsubscribe()
        except nats.errors.Error as error:
            _LOG.debug("unsubscribe", error=str(error))


class NatsDelivery:
    """A delivery of a `NatsConsumer`."""

    def __init__(self, bus: NatsBus, message: Msg) -> None:
        headers = dict(message.headers or {})
        self.message = BusMessage(
            message.subject, message.data, headers.get(Header.MSG_ID.value, ""), headers
        )
        self.times = message.metadata.num_delivered or 1
        self._bus = bus
        self._message = message

    async def ack(self) -> None:
        await self._bus.call(self._message.ack_sync)

    async def ack_unsure(self) -> None:
        await self._bus.call(self._message.ack)

    async def nak(self, delay_s: float = 0.0) -> None:
        await self._bus.call(lambda: self._message.nak(delay_s or None))
