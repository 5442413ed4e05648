"""Predicted device-seconds per (model, phase, shape, units a forward), calibrated by what was
measured.

A phase is what the unit says (`cost_phase`), or a whole request of a program. There is one rule,
`price`, over one kind of book, `PriceBook`: the estimator is the book of a scheduler, for
admission, placement and shares; what it exports, `deployment.card.CostModel`, is read by
`CardCosts`, for fleet routing. Both give the same seconds to the bit.

What was seen is predicted as it was seen: by the mean of the newest measurements, without those
that stand out, such as a first forward that warms something up. For the rest there are two rules,
each with what it falls back on:

- another number of units: a forward has a fixed part and a part for each unit; both are fitted
  to the numbers that were seen, or the fixed share of the phase's other shapes is taken;
- another shape: the nearest shape of the phase, scaled by a power of the number of elements that
  is fitted to the phase's shapes; the first power while there is but one.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final, Protocol

from fastvideo.deployment.card import CostEntry, CostModel, ForwardCost
from fastvideo.model.specs import CostPrior
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import WorkUnit

Priors = Callable[[str, str], CostPrior | None]
"""A card's first guess for (model id, phase), if it has one."""

# Shapes that are remembered; the oldest is forgotten first.
ENTRIES_MAX: Final = 10_000
# Shapes that a deployment card has, the newest.
EXPORTED_MAX: Final = 2_000
# Shapes of one phase that a new shape is compared with.
NEIGHBOURS_MAX: Final = 64
# Attention grows with the square of the elements, and nothing of ours faster.
POWER_MAX: Final = 2.0
# A measurement that is further from the typical one than by this factor stands out.
OUTLIER: Final = 1.5
# Weight of the newest prediction in the error over all.
ERROR_SMOOTHING: Final = 0.02


@dataclass(slots=True)
class _Measured:
    """What forwards of one size took lately, seconds, the newest last."""

    recent: list[float]
    seconds: float
    samples: int = 1

    def add(self, seconds: float, samples_max: int) -> None:
        self.recent.append(seconds)
        del self.recent[:-samples_max]
        self.samples += 1
        # What stands out is slow, hardly ever fast, so of two the faster one counts.
        typical = sorted(self.recent)[(len(self.recent) - 1) // 2]
        near = [s for s in self.recent if typical / OUTLIER <= s <= typical * OUTLIER]
        self.seconds = sum(near) / len(near)


@dataclass(slots=True)
class _Error:
    """The mean absolute error of predictions, relative to what was measured; at most 1 each."""

    mean: float = 0.0
    samples: int = 0

    def add(self, predicted: float, seconds: float, smoothing: float) -> None:
        error = min(1.0, abs(seconds - predicted) / seconds) if seconds > 0 else 0.0
        self.samples += 1
        self.mean += max(smoothing, 1.0 / self.samples) * (error - self.mean)


@dataclass(slots=True)
class _Shape:
    """What is known of one shape: seconds of a forward by its number of units."""

    elements: int
    sizes: dict[int, _Measured] = field(default_factory=dict)
    error: _Error = field(default_factory=_Error)

    def predict(self, units: int) -> float | None:
        """Seconds of a forward of that size, if this shape alone says it."""
        sized = self.sizes.get(units)
        if sized is not None and sized.samples > 1:
            return sized.seconds
        line = self.line()
        if line is None:
            return sized.seconds if sized is not None else None
        others = line[0] + line[1] * units
        return others if sized is None else min(sized.seconds, OUTLIER * others)

    def line(self) -> tuple[float, float] | None:
        """Seconds of a forward's fixed part and of each unit; None with one number of units."""
        sure = [(n, known.seconds) for n, known in self.sizes.items() if known.samples > 1]
        if len(sure) < 2:
            sure = [(n, known.seconds) for n, known in self.sizes.items()]
        return _line(sure) if len(sure) > 1 else None


class PriceBook(Protocol):
    """What is known of costs, to be priced with by `price`."""

    def known(self, model_id: str, phase: str, shape: str) -> _Shape | None:
        """What was measured of one shape."""
        ...

    def neighbours(self, model_id: str, phase: str) -> Sequence[_Shape]:
        """The phase's shapes, the newest of them, in the order of their first measurement."""
        ...

    def prior(self, model_id: str, phase: str) -> CostPrior | None:
        """The card's first guess, if it has one."""
        ...


def price(book: PriceBook, model_id: str, phase: str, shape: str, units: int = 1) -> float:
    """Seconds of one forward over `units` units of that shape; 0.0 when nothing is known."""
    known = book.known(model_id, phase, shape)
    if known is not None:
        seconds = known.predict(units)
        if seconds is not None:
            return seconds
        return _other_size(known, _fixed_share(book.neighbours(model_id, phase)), units)
    neighbours = book.neighbours(model_id, phase)
    elements = shape_elements(shape)
    if neighbours:
        one = _other_shape(elements, [(n.elements, _one(n)) for n in neighbours])
        return _scaled(one, _fixed_share(neighbours), units)
    prior = book.prior(model_id, phase)
    if prior is None:
        return 0.0
    return prior.base_seconds + prior.seconds_per_token * elements * units


def _other_size(known: _Shape, share: float, units: int) -> float:
    """Seconds of another number of units than the only one that was seen of a shape."""
    ((size, measured),) = known.sizes.items()
    return _scaled(measured.seconds / _scaled(1.0, share, size), share, units)


def price_request(book: PriceBook, spec: RequestSpec) -> float:
    """Device-seconds of a whole request, from its first unit to its last; 0.0 when unknown."""
    return price(book, spec.model_id, request_phase(spec), request_shape(spec))


class CostEstimator:
    """The shard's one cost model, for admission, placement and the deployment card."""

    # Not in a snapshot (`snapshot`): what its maker gives it.
    DERIVED: ClassVar = frozenset({"_priors", "_samples_max"})

    def __init__(self, priors: Priors, *, samples_max: int = 7) -> None:
        self._priors = priors
        self._samples_max = samples_max
        self._shapes: dict[tuple[str, str, str], _Shape] = {}
        # (model, phase) to its shapes, in the order of their first measurement.
        self._phases: dict[tuple[str, str], dict[str, None]] = {}
        self._error = _Error()

    @property
    def error(self) -> float:
        """How far predictions were off lately, relative to what was measured, 0 to 1."""
        return self._error.mean

    @property
    def samples(self) -> int:
        """Predictions that were compared with a measurement."""
        return self._error.samples

    def predict(self, model_id: str, phase: str, shape: str, units: int = 1) -> float:
        """Seconds of one forward over `units` units of that shape; 0.0 when nothing is known."""
        return price(self, model_id, phase, shape, units)

    def predict_batch(self, model_id: str, units: tuple[WorkUnit, ...]) -> float:
        """Seconds of one forward over units that share it."""
        first = units[0]
        return self.predict(model_id, first.cost_phase, first.cost_shape, len(units))

    def measure(self, model_id: str, phase: str, shape: str, units: int, seconds: float) -> None:
        """Learn from a forward of `units` units that took `seconds`."""
        predicted = self.predict(model_id, phase, shape, units)
        known = self._shapes.get((model_id, phase, shape))
        if known is None:
            known = self._remember(model_id, phase, shape)
        known.error.add(predicted, seconds, 1.0 / self._samples_max)
        self._error.add(predicted, seconds, ERROR_SMOOTHING)
        sized = known.sizes.get(units)
        if sized is None:
            known.sizes[units] = _Measured([seconds], seconds)
        else:
            sized.add(seconds, self._samples_max)

    def export(self) -> CostModel:
        """What is known, one entry a (model, phase, shape), its seconds those of one unit."""
        return CostModel(entries=tuple(self.entries()))

    def entries(self) -> Iterator[CostEntry]:
        """The entries of `export`, each made when it is asked for.

        Whoever must not be held up by all of them goes on with something else in between.
        """
        shares: dict[tuple[str, str], float] = {}
        for (model_id, phase, shape), known in list(self._shapes.items())[-EXPORTED_MAX:]:
            seconds = known.predict(1)
            if seconds is None:
                # As `price` has it, with the share of a phase worked out once.
                share = shares.get((model_id, phase))
                if share is None:
                    share = _fixed_share(self.neighbours(model_id, phase))
                    shares[(model_id, phase)] = share
                seconds = _other_size(known, share, 1)
            yield CostEntry(
                model_id=model_id,
                phase=phase,
                shape=shape,
                seconds=seconds,
                relative_error=known.error.mean,
                samples=known.error.samples,
                forwards=tuple(
                    ForwardCost(units=units, seconds=sized.seconds, samples=sized.samples)
                    for units, sized in known.sizes.items()
                ),
            )

    def known(self, model_id: str, phase: str, shape: str) -> _Shape | None:
        """What was measured of one shape."""
        return self._shapes.get((model_id, phase, shape))

    def neighbours(self, model_id: str, phase: str) -> Sequence[_Shape]:
        """The phase's shapes, the newest of them."""
        shapes = list(self._phases.get((model_id, phase), ()))[-NEIGHBOURS_MAX:]
        return [self._shapes[(model_id, phase, shape)] for shape in shapes]

    def prior(self, model_id: str, phase: str) -> CostPrior | None:
        """The card's first guess, if it has one."""
        return self._priors(model_id, phase)

    def _remember(self, model_id: str, phase: str, shape: str) -> _Shape:
        if len(self._shapes) >= ENTRIES_MAX:
            oldest = next(iter(self._shapes))
            del self._shapes[oldest]
            del self._phases[oldest[:2]][oldest[2]]
        known = self._shapes[(model_id, phase, shape)] = _Shape(shape_elements(shape))
        self._phases.setdefault((model_id, phase), {})[shape] = None
        return known


class CardCosts:
    """The prices of a deployment card, as the engine that exported it has them."""

    def __init__(self, model: CostModel) -> None:
        self._shapes: dict[tuple[str, str, str], _Shape] = {}
        self._phases: dict[tuple[str, str], list[_Shape]] = {}
        self._priors = {(one.model_id, one.prior.phase): one.prior for one in model.priors}
        for entry in model.entries:
            shape = self._shapes[(entry.model_id, entry.phase, entry.shape)] = _of_entry(entry)
            self._phases.setdefault((entry.model_id, entry.phase), []).append(shape)

    def known(self, model_id: str, phase: str, shape: str) -> _Shape | None:
        """What was measured of one shape."""
        return self._shapes.get((model_id, phase, shape))

    def neighbours(self, model_id: str, phase: str) -> Sequence[_Shape]:
        """The phase's shapes, the newest of them."""
        return self._phases.get((model_id, phase), [])[-NEIGHBOURS_MAX:]

    def prior(self, model_id: str, phase: str) -> CostPrior | None:
        """The card's first guess, if it has one."""
        return self._priors.get((model_id, phase))


def _of_entry(entry: CostEntry) -> _Shape:
    # An author who writes a card by hand may leave the sizes out.
    sizes = entry.forwards or (ForwardCost(units=1, seconds=entry.seconds, samples=entry.samples),)
    return _Shape(
        shape_elements(entry.shape),
        {one.units: _Measured([one.seconds], one.seconds, one.samples) for one in sizes},
        _Error(entry.relative_error, entry.samples),
    )


def _one(known: _Shape) -> float:
    """Seconds of a forward of one unit, by what is known of the shape alone."""
    seconds = known.predict(1)
    if seconds is not None:
        return seconds
    ((size, measured),) = known.sizes.items()
    return measured.seconds / size


def _scaled(one: float, fixed_share: float, units: int) -> float:
    """Seconds of `units` units, where one takes `one` and its fixed part does not grow."""
    return one * (fixed_share + (1.0 - fixed_share) * units)


def _fixed_share(shapes: Iterable[_Shape]) -> float:
    """The mean share of the fixed part in a forward of one unit; 0 when no shape tells."""
    lines = [line for line in (shape.line() for shape in shapes) if line is not None]
    shares = [fixed / (fixed + each) for fixed, each in lines if fixed + each > 0]
    return sum(shares) / len(shares) if shares else 0.0


def _other_shape(elements: int, known: list[tuple[int, float]]) -> float:
    """Seconds at a number of elements, from (elements, seconds) of other shapes."""
    near, seconds = min(known, key=lambda point: abs(math.log(elements / point[0])))
    points = [(math.log(size), math.log(taken)) for size, taken in known if taken > 0]
    power = 1.0
    if len({size for size, _ in points}) > 1:
        power = min(POWER_MAX, max(0.0, _slope(points)[0]))
    return seconds * math.pow(elements / near, power)


def _line(points: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """The fixed part and the slope of the line through points; neither is below 0."""
    found = list(points)
    slope, mean_x, mean_y = _slope(found)
    if slope <= 0:
        return mean_y, 0.0
    fixed = mean_y - slope * mean_x
    if fixed >= 0:
        return fixed, slope
    # Through the origin.
    return 0.0, sum(x * y for x, y in found) / sum(x * x for x, _ in found)


def _slope(points: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The least-squares slope, and the means of both coordinates."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if spread == 0:
        return 0.0, mean_x, mean_y
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread, mean_x, mean_y


def shape_elements(shape: str) -> int:
    """The product of the numbers in a shape such as "16x3x6x6/2"; 1 when there is none."""
    product = 1
    for part in shape.replace("/", "x").split("x"):
        if part.isdigit():
            product *= max(1, int(part))
    return product


def request_phase(spec: RequestSpec) -> str:
    """The phase under which whole requests of a program are known."""
    return f"request/{spec.program_id}"


def request_shape(spec: RequestSpec) -> str:
    """The shape under which whole requests are known: their size, and branches of a step."""
    branches = 2 if spec.sampling.guidance_scale > 1 else 1
    return f"{request_size(spec)}/{branches}"


def request_size(spec: RequestSpec) -> str:
    """How large a request is, whatever its guidance: width, height, frames, steps."""
    sampling = spec.sampling
    return f"{sampling.width}x{sampling.height}x{sampling.num_frames}x{sampling.steps}"
