"""Meters of the metrics in `instruments`; the values go where `providers.configure` sends them."""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from fastvideo.telemetry.instruments import Instrument

Labels = Mapping[str, str]
Level = tuple[float, Labels]
"""How something stands now, and its labels."""

# An event loop that does not answer meanwhile costs this collection its gauges.
READ_S_MAX: Final = 1.0


def counter(instrument: Instrument) -> metrics.Counter:
    """A sum that only rises."""
    return _meter().create_counter(
        instrument.name, unit=instrument.unit, description=instrument.description
    )


def histogram(instrument: Instrument) -> metrics.Histogram:
    """A distribution, such as of durations."""
    return _meter().create_histogram(
        instrument.name,
        unit=instrument.unit,
        description=instrument.description,
        explicit_bucket_boundaries_advisory=instrument.boundaries,
    )


def observe(instrument: Instrument, read: Callable[[], Iterable[Level]]) -> None:
    """Let a gauge be read from the state whenever somebody collects; once a process.

    `read` runs on the event loop of the caller, so it may look at what that loop changes. After
    the loop's end there is nothing to read.
    """
    loop, owner = asyncio.get_running_loop(), threading.get_ident()

    def collect(_: CallbackOptions) -> Iterable[Observation]:
        if loop.is_closed():
            return []
        if threading.get_ident() == owner:
            return _observations(read)
        answer: Future[list[Observation]] = Future()
        try:
            loop.call_soon_threadsafe(_answer, answer, read)
        except RuntimeError:
            # Closed by now.
            return []
        try:
            return answer.result(READ_S_MAX)
        except TimeoutError:
            return []

    _meter().create_observable_gauge(
        instrument.name,
        callbacks=[collect],
        unit=instrument.unit,
        description=instrument.description,
    )


def _answer(answer: "Future[list[Observation]]", read: Callable[[], Iterable[Level]]) -> None:
    try:
        answer.set_result(_observations(read))
    except Exception as error:  # noqa: BLE001 - whoever collects is to have it
        answer.set_exception(error)


def _observations(read: Callable[[], Iterable[Level]]) -> list[Observation]:
    return [Observation(value, dict[str, Any](labels)) for value, labels in read()]


def _meter() -> metrics.Meter:
    return metrics.get_meter("fastvideo")
