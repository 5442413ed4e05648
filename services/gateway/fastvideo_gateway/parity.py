"""Results of parity checks that somebody ran: kept in the stream of the model that was checked."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from fastvideo.clock import Clock, milliseconds
from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import InvalidField
from fastvideo.events.catalog import new_event
from fastvideo.events.records import AppendCommand, NewEvent, StreamAppend
from fastvideo.events.store import Appends
from fastvideo.events.types import EventMetadata
from fastvideo.ids import new_id
from fastvideo.rpc.names import check_name
from fastvideo.scheduling.known_weights import model_stream
from fastvideo.scheduling.traces import ParityChecked
from fastvideo.telemetry.tracing import current_traceparent
from fastvideo.version import program_version

CHECKS_MAX: Final = 256
RUNGS: Final = ("C0", "C1", "C2", "C3", "C4")
_TEXT_MAX: Final = 256


class ParityRecorder:
    """Appends results; each is an event of its own."""

    def __init__(self, appender: Appends, catalog: Catalog, clock: Clock) -> None:
        self._appender = appender
        self._catalog = catalog
        self._clock = clock

    async def record(self, checks: Sequence[ParityChecked], idempotency_key: str) -> None:
        """Keep results, all or none; once a key, if there is one.

        Raises InvalidField for a result that cannot be, NotFound for a model that no card has.
        """
        if not 0 < len(checks) <= CHECKS_MAX:
            raise InvalidField("checks", len(checks), f"1 to {CHECKS_MAX} results")
        check_name("idempotency_key", idempotency_key)
        streams: dict[str, list[NewEvent]] = {}
        for number, check in enumerate(checks):
            _check(check, f"checks.{number}")
            self._catalog.get(check.model_id)
            streams.setdefault(model_stream(check.model_id), []).append(self._event(check))
        command = AppendCommand(
            streams=tuple(StreamAppend(name, tuple(events)) for name, events in streams.items()),
            idempotency_key=f"parity/{idempotency_key}" if idempotency_key else None,
        )
        await self._appender.append(command)

    def _event(self, check: ParityChecked) -> NewEvent:
        now = self._clock.now()
        about = EventMetadata(
            model_id=check.model_id,
            traceparent=current_traceparent(),
            versions={"fastvideo": program_version()},
            occurred_at=now,
        )
        # Whoever asks is no worker, whatever he says.
        return new_event(new_id("evt", milliseconds(now)), replace(check, worker_id=""), about)


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
