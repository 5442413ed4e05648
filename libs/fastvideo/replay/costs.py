"""What steps cost, from what workers measured: a line through seconds over tokens, a loop each."""

from collections.abc import Mapping
from dataclasses import dataclass

from fastvideo.deployment.catalog import Catalog
from fastvideo.model.specs import CostPrior
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import StepResult
from fastvideo.simulation.models import SimulatedModels
from fastvideo.simulation.trace import LoopTrace, ModelTrace


@dataclass(slots=True)
class Line:
    """Sums of points, enough for the line that is nearest to them."""

    points: int = 0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0

    def add(self, x: float, y: float) -> None:
        """One point more."""
        self.points += 1
        self.x += x
        self.y += y
        self.xx += x * x
        self.xy += x * y

    @property
    def fitted(self) -> tuple[float, float] | None:
        """Where it begins and how it rises, neither below 0; None when all points have one x."""
        spread = self.points * self.xx - self.x * self.x
        if self.points < 2 or spread <= 1e-9 * self.points * self.xx:
            return None
        rise = (self.points * self.xy - self.x * self.y) / spread
        begin = (self.y - rise * self.x) / self.points
        if rise < 0:
            return self.y / self.points, 0.0
        if begin < 0:
            return 0.0, self.xy / self.xx
        return begin, rise

    def scaled(self, guess: CostPrior) -> tuple[float, float]:
        """The line of a card's guess, as high as the points: forwards were all of one size."""
        x, y = self.x / self.points, self.y / self.points
        guessed = guess.base_seconds + guess.seconds_per_token * x
        if guessed <= 0:
            return y, 0.0
        return guess.base_seconds * y / guessed, guess.seconds_per_token * y / guessed


class StepCosts:
    """Gathers what steps took, by model and loop."""

    def __init__(self, models: SimulatedModels) -> None:
        # They price a token at one second and a forward at nothing: a run's price is its tokens.
        self._models = models
        self._lines: dict[tuple[str, str], Line] = {}

    def step(
        self, together: list[StepResult], specs: Mapping[str, RequestSpec], seconds: float
    ) -> bool:
        """Take in units that ran in one forward; whether they might have shared it."""
        first = specs.get(together[0].loop.request_id)
        if first is None or seconds <= 0:
            return False
        run = self._models.run(first, together[0].loop.node_id)
        tokens = 0.0
        for result in together:
            spec = specs.get(result.loop.request_id)
            if spec is None:
                return False
            tokens += self._models.run(spec, result.loop.node_id).unit_s
        self._lines.setdefault((first.model_id, run.loop_id), Line()).add(tokens, seconds)
        return run.max_batch > 1

    def traces(self, catalog: Catalog, prepare_s: float) -> dict[str, ModelTrace]:
        """The models at these prices; a loop of which nothing ran has its card's."""
        found: dict[str, dict[str, LoopTrace]] = {}
        for (model_id, loop_id), line in self._lines.items():
            cost = catalog.get(model_id).card.loops[loop_id].cost
            base_s, token_s = line.fitted or line.scaled(cost)
            loops = found.setdefault(model_id, {})
            loops[loop_id] = LoopTrace(base_s=base_s, token_s=token_s)
        return {
            model_id: ModelTrace(card=model_id, loops=loops, prepare_s=prepare_s)
            for model_id, loops in found.items()
        }


def unit_priced(model_ids: list[str], loops: Mapping[str, list[str]]) -> dict[str, ModelTrace]:
    """Models whose price is the number of their tokens."""
    return {
        model_id: ModelTrace(
            card=model_id,
            loops={loop_id: LoopTrace(base_s=0.0, token_s=1.0) for loop_id in loops[model_id]},
        )
        for model_id in model_ids
    }
