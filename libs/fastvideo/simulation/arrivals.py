"""When requests come, and what they ask: all of a world's requests, drawn from its seed."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from heapq import merge
from random import Random
from typing import Final

from fastvideo.requests.types import OutputSpec, RequestKind, RequestSpec, SamplingParams
from fastvideo.simulation.agenda import microseconds
from fastvideo.simulation.bounds import COUNT_MAX
from fastvideo.simulation.models import SimulatedModels
from fastvideo.simulation.recorded import RecordedRequest
from fastvideo.simulation.trace import (
    AtOnce,
    Bursts,
    ClassTrace,
    Daily,
    Poisson,
    Recorded,
    Trace,
)

START: Final = datetime(2026, 1, 1, tzinfo=UTC)
"""The wall time at which every world begins."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that comes."""

    at_us: int
    class_name: str
    spec: RequestSpec
    # When it is cancelled, if it is.
    cancel_at_us: int | None = None


Recordings = dict[str, tuple[RecordedRequest, ...]]
"""What was recorded, by the name of its file."""


def arrivals(
    trace: Trace, models: SimulatedModels, recordings: Recordings, seed: int
) -> Iterator[Arrival]:
    """All requests of a trace, in the order in which they come.

    Each class draws from a source of its own, so that one class does not change another.
    """
    streams = []
    for number, (name, given) in enumerate(trace.classes.items()):
        maker = _Maker(trace, models, name, given, number, Random(f"{seed}/arrivals/{name}"))
        streams.append(maker.arrivals(recordings))
    return merge(*streams, key=lambda arrival: arrival.at_us)


class _Maker:
    """Makes the requests of one class."""

    def __init__(
        self,
        trace: Trace,
        models: SimulatedModels,
        name: str,
        given: ClassTrace,
        number: int,
        random: Random,
    ) -> None:
        self._trace = trace
        self._models = models
        self._name = name
        self._given = given
        self._prefix = f"req_{number}"
        self._random = random
        self._made = 0
        self._program = given.program or models.default_program(given.model)
        self._shapes = [parse_shape(shape) for shape in given.shapes]

    def arrivals(self, recordings: Recordings) -> Iterator[Arrival]:
        """The requests of the class, in order."""
        for at_s, recorded in self._moments(recordings):
            if at_s <= self._trace.duration_s:
                yield self._make(at_s, recorded)

    def _moments(self, recordings: Recordings) -> Iterator[tuple[float, RecordedRequest | None]]:
        sources: list[Iterator[tuple[float, RecordedRequest | None]]] = []
        for kind in self._given.arrivals:
            match kind:
                case Poisson():
                    sources.append(_plain(self._poisson(kind.per_s)))
                case Bursts():
                    sources.append(_plain(self._bursts(kind)))
                case Daily():
                    sources.append(_plain(self._daily(kind)))
                case AtOnce():
                    sources.append(_plain([kind.at_s] * kind.count))
                case Recorded():
                    played = self._models.played(self._given.model, recordings[kind.file])
                    sources.append((line.at_s / kind.speed, line) for line in played)
        return merge(*sources, key=lambda moment: moment[0])

    def _poisson(self, per_s: float) -> list[float]:
        moments = []
        at_s = self._random.expovariate(per_s)
        while at_s <= self._trace.duration_s:
            moments.append(at_s)
            at_s += self._random.expovariate(per_s)
        return moments

    def _bursts(self, bursts: Bursts) -> list[float]:
        moments: list[float] = []
        at_s = self._random.uniform(0.0, bursts.every_s)
        while at_s <= self._trace.duration_s:
            spread = (self._random.uniform(0.0, bursts.spread_s) for _ in range(bursts.size))
            moments.extend(at_s + later for later in spread)
            at_s += bursts.every_s
        return sorted(moments)

    def _daily(self, daily: Daily) -> list[float]:
        """A Poisson process of the highest rate, thinned to the rate of the moment."""
        swing = (daily.per_s_high - daily.per_s_low) / 2
        moments = []
        for at_s in self._poisson(daily.per_s_high):
            phase = 2 * math.pi * at_s / daily.period_s
            rate = daily.per_s_low + swing * (1 - math.cos(phase))
            if self._random.random() * daily.per_s_high < rate:
                moments.append(at_s)
        return moments

    def _make(self, at_s: float, recorded: RecordedRequest | None) -> Arrival:
        given, random = self._given, self._random
        self._made += 1
        at_us = microseconds(at_s)
        width, height, frames = random.choice(self._shapes)
        steps, guidance = random.choice(given.steps), random.choice(given.guidance_scales)
        tenant, priority, deadline_s = (
            random.choice(given.tenants),
            given.priority,
            given.deadline_s,
        )
        program = self._program
        if recorded is not None:
            if recorded.program_id in self._models.programs(given.model):
                program = recorded.program_id
            width, height, frames = recorded.width, recorded.height, recorded.num_frames
            steps, guidance = recorded.steps, recorded.guidance_scale
            tenant = recorded.tenant_id or tenant
            priority = recorded.priority
            deadline_s = recorded.deadline_s
        session = ""
        if given.session_size:
            session = f"ses_{self._name}_{(self._made - 1) // given.session_size}"
        cancel_at_us = None
        if random.random() < given.cancelled:
            cancel_at_us = at_us + microseconds(random.uniform(*given.cancelled_after_s))
        if recorded is not None and recorded.cancelled_after_s is not None:
            cancel_at_us = at_us + microseconds(recorded.cancelled_after_s)
        accepted_at = START + timedelta(microseconds=at_us)
        spec = RequestSpec(
            request_id=f"{self._prefix}_{self._made:06d}",
            kind=RequestKind.GENERATION,
            model_id=given.model,
            program_id=program,
            sampling=SamplingParams(
                width=width,
                height=height,
                num_frames=frames,
                fps=8,
                steps=steps,
                guidance_scale=guidance,
                seed=self._made,
            ),
            outputs=OutputSpec(video=True),
            tenant_id=tenant,
            session_id=session,
            priority=priority,
            deadline=None if deadline_s is None else accepted_at + timedelta(seconds=deadline_s),
        )
        return Arrival(at_us, self._name, spec, cancel_at_us)


def parse_shape(text: str) -> tuple[int, int, int]:
    """Width, height and frames of "832x480x81". ValueError when that cannot be meant."""
    width, height, frames = (int(part) for part in text.split("x"))
    if not all(1 <= side <= COUNT_MAX for side in (width, height, frames)):
        raise ValueError(text)
    return width, height, frames


def _plain(moments: list[float]) -> Iterator[tuple[float, RecordedRequest | None]]:
    return ((at_s, None) for at_s in moments)
