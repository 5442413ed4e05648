"""Results of parity checks that somebody ran: kept in the stream of the model that was checked."""

import math
from dataclasses import replace
from typing import Final

from fastvideo import wire
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.clock import Clock, milliseconds
from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import InvalidField
from fastvideo.events.catalog import new_event
from fastvideo.events.first_use import FirstUse, asked_digest, keyed_event_id, lookup, scoped_key
from fastvideo.events.records import AppendCommand, NewEvent, StreamAppend
from fastvideo.events.store import Appends, EventLog
from fastvideo.events.types import EventMetadata
from fastvideo.ids import new_id
from fastvideo.model.rungs import RUNGS
from fastvideo.scheduling.known_weights import model_stream
from fastvideo.scheduling.traces import ParityChecked
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo.version import program_version

CHECKS_MAX: Final = 256
_TEXT_MAX: Final = 256


class ParityRecorder:
    """Appends results; each is an event of its own."""

    def __init__(self, log: EventLog, appender: Appends, catalog: Catalog, clock: Clock) -> None:
        self._log = log
        self._appender = appender
        self._catalog = catalog
        self._clock = clock

    async def record(self, message: gateway_pb2.RecordParityRequest, tenant_id: str) -> None:
        """Keep results, all or none; once for each idempotency key.

        Raises InvalidField for a result that cannot be, NotFound for a model that no card has,
        and AlreadyExists for a key that was used for other results.
        """
        key = scoped_key("parity", tenant_id, message.idempotency_key)
        digest = asked_digest(message)
        if key is not None and await self._log.position_of(keyed_event_id(key)) is not None:
            # A repeat is answered even when its results would be refused by now.
            command = lookup(key)
        else:
            command = self._command(message, key, digest)
        result = await self._appender.append(command)
        if result.repeated:
            FirstUse.of(result).require_same(digest)

    def _command(
        self, message: gateway_pb2.RecordParityRequest, key: str | None, digest: str
    ) -> AppendCommand:
        checks = [wire.from_proto(ParityChecked, check) for check in message.checks]
        if not 0 < len(checks) <= CHECKS_MAX:
            raise InvalidField("checks", len(checks), f"1 to {CHECKS_MAX} results")
        streams: dict[str, list[NewEvent]] = {}
        for number, check in enumerate(checks):
            _check(check, f"checks.{number}")
            self._catalog.get(check.model_id)
            # The key guards the first event; its id is the key's.
            event_id = keyed_event_id(key) if key and not number else ""
            event = self._event(check, event_id)
            streams.setdefault(model_stream(check.model_id), []).append(event)
        return AppendCommand(
            streams=tuple(StreamAppend(name, tuple(events)) for name, events in streams.items()),
            idempotency_key=key,
            result=FirstUse(model_stream(checks[0].model_id), digest).encode(),
        )

    def _event(self, check: ParityChecked, event_id: str) -> NewEvent:
        now = self._clock.now()
        about = EventMetadata(
            model_id=check.model_id,
            traceparent=current_traceparent(),
            versions={"fastvideo": program_version()},
            occurred_at=now,
        )
        # Whoever asks is no worker, whatever he says.
        event_id = event_id or new_id("evt", milliseconds(now))
        return new_event(event_id, replace(check, worker_id=""), about)


def _check(check: ParityChecked, path: str) -> None:
    if check.rung not in RUNGS:
        raise InvalidField(f"{path}.rung", check.rung, ", ".join(RUNGS))
    for name in ("subject", "reference"):
        text = getattr(check, name)
        if not 0 < len(text) <= _TEXT_MAX:
            raise InvalidField(f"{path}.{name}", text, f"1 to {_TEXT_MAX} characters")
    for name in ("max_abs_difference", "tolerance"):
        value = getattr(check, name)
        if math.isnan(value) or value < 0:
            raise InvalidField(f"{path}.{name}", value, "0 or more")
    if check.passed and check.max_abs_difference > check.tolerance:
        raise InvalidField(f"{path}.passed", True, "a difference within the tolerance")
