"""The model that a caller means, and the program where it names one."""

from dataclasses import dataclass

from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.errors import InvalidField
from fastvideo.requests.types import RequestKind
from fastvideo_gateway.models import ModelDirectory


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a caller asks."""

    entry: CatalogEntry
    # Empty leaves it to the request.
    program_id: str = ""


async def chosen_model(models: ModelDirectory, name: str) -> Chosen:
    """The named model or servable; without a name the only model that is offered.

    Raises NotFound for an unknown one, and InvalidField when several could be meant and for a
    servable that makes no video.
    """
    if not name:
        return Chosen(await _only(models))
    status, servable = await models.find(name)
    if servable is None:
        return Chosen(status.entry)
    if servable.program.request_kind is not RequestKind.GENERATION:
        able = [
            one.servable_id
            for one in status.servables
            if one.program.request_kind is RequestKind.GENERATION
        ]
        raise InvalidField("model", name, ", ".join((status.entry.card.model_id, *able)))
    return Chosen(status.entry, servable.program.program_id)


async def _only(models: ModelDirectory) -> CatalogEntry:
    offered = [one.entry for one in await models.list() if not one.entry.unavailable_reason]
    if len(offered) != 1:
        names = ", ".join(entry.card.model_id for entry in offered)
        raise InvalidField("model", "", names, reason="MODEL_REQUIRED")
    return offered[0]
