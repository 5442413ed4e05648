"""The models of a deployment, as the scheduler asks for them."""

from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import FastVideoError, NotFound
from fastvideo.model.specs import CostPrior
from fastvideo.program.specs import ProgramSpec


class DeployedModels:
    """A `ModelCatalog` over the catalog of cards."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def program(self, model_id: str, program_id: str) -> ProgramSpec:
        """A model's program. NotFound when there is none of that name."""
        program = self._catalog.get(model_id).programs.get(program_id)
        if program is None:
            raise NotFound(
                f"model {model_id} has no program {program_id!r}",
                reason="PROGRAM_NOT_FOUND",
                subject="program_id",
            )
        return program

    def cost_prior(self, model_id: str, phase: str) -> CostPrior | None:
        """The card's first guess at a phase's cost."""
        try:
            loops = self._catalog.get(model_id).card.loops.values()
        except FastVideoError:
            return None
        priors = (cost for loop in loops for cost in (loop.cost, *(p.cost for p in loop.phases)))
        return next((cost for cost in priors if cost.phase == phase), None)
