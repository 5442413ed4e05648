"""Predicted device-seconds per (model, phase, shape), calibrated by what batches really took.

A phase is what the unit says (`cost_phase`), or a whole request of a program. The export,
`deployment.card.CostModel`, is what fleet routing prices with.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, TypeVar

from fastvideo.deployment.card import CostEntry, CostModel
from fastvideo.model.specs import CostPrior
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import WorkUnit

Priors = Callable[[str, str], CostPrior | None]
"""A card's first guess for (model id, phase), if it has one."""

# Of each table; the oldest shape is forgotten first.
ENTRIES_MAX: Final = 10_000

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class _Measured:
    """A running mean of seconds, and of how far predictions were off."""

    seconds: float
    relative_error: float = 0.0
    samples: int = 1

    def add(self, seconds: float, error: float, smoothing: float) -> None:
        # The plain mean while there are few samples, exponential smoothing afterwards.
        weight = max(smoothing, 1.0 / (self.samples + 1))
        self.seconds += weight * (seconds - self.seconds)
        self.relative_error += weight * (error - self.relative_error)
        self.samples += 1


class CostEstimator:
    """The shard's one cost model, for admission, placement and the deployment card."""

    def __init__(self, priors: Priors, *, smoothing: float = 0.3) -> None:
        self._priors = priors
        self._smoothing = smoothing
        # A shape's cost at one unit a forward, and at each batch size that was seen.
        self._by_shape: dict[tuple[str, str, str], _Measured] = {}
        self._by_size: dict[tuple[str, str, str, int], _Measured] = {}
        # Seconds per element of a shape, for shapes not seen yet.
        self._by_phase: dict[tuple[str, str], _Measured] = {}

    def predict(self, model_id: str, phase: str, shape: str, units: int = 1) -> float:
        """Seconds of one forward over `units` units of that shape; 0.0 when nothing is known."""
        sized = self._by_size.get((model_id, phase, shape, units))
        if sized is not None:
            return sized.seconds
        known = self._by_shape.get((model_id, phase, shape))
        if known is not None:
            return known.seconds * units
        elements = shape_elements(shape)
        per_element = self._by_phase.get((model_id, phase))
        if per_element is not None:
            return per_element.seconds * elements * units
        prior = self._priors(model_id, phase)
        if prior is None:
            return 0.0
        return (prior.base_seconds + prior.seconds_per_token * elements) * units

    def predict_batch(self, model_id: str, units: tuple[WorkUnit, ...]) -> float:
        """Seconds of one forward over units that share it."""
        first = units[0]
        return self.predict(model_id, first.cost_phase, first.cost_shape, len(units))

    def measure(self, model_id: str, phase: str, shape: str, units: int, seconds: float) -> None:
        """Learn from a forward of `units` units that took `seconds`."""
        predicted = self.predict(model_id, phase, shape, units)
        error = min(1.0, abs(seconds - predicted) / seconds) if seconds > 0 else 0.0
        each = seconds / units
        self._add(self._by_size, (model_id, phase, shape, units), seconds, error)
        self._add(self._by_shape, (model_id, phase, shape), each, error)
        per_element = each / max(1, shape_elements(shape))
        self._add(self._by_phase, (model_id, phase), per_element, error)

    def export(self) -> CostModel:
        """What is known, one entry a (model, phase, shape), seconds per unit."""
        return CostModel(
            entries=tuple(
                CostEntry(
                    model_id=model_id,
                    phase=phase,
                    shape=shape,
                    seconds=known.seconds,
                    relative_error=known.relative_error,
                    samples=known.samples,
                )
                for (model_id, phase, shape), known in sorted(
                    self._by_shape.items(), key=lambda item: item[0]
                )
            )
        )

    def _add(self, table: dict[K, _Measured], key: K, seconds: float, error: float) -> None:
        known = table.get(key)
        if known is None:
            if len(table) >= ENTRIES_MAX:
                del table[next(iter(table))]
            table[key] = _Measured(seconds, error)
        else:
            known.add(seconds, error, self._smoothing)


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
    """The shape under which whole requests are known: width, height, frames, steps."""
    sampling = spec.sampling
    return f"{sampling.width}x{sampling.height}x{sampling.num_frames}x{sampling.steps}"
