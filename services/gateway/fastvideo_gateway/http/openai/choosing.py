"""The model that a caller means."""

from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.errors import InvalidField
from fastvideo_gateway.models import ModelDirectory


async def chosen_model(models: ModelDirectory, model_id: str) -> CatalogEntry:
    """The named model; without a name the only one that is offered.

    Raises NotFound for an unknown one and InvalidField when several could be meant.
    """
    if model_id:
        return (await models.describe(model_id)).entry
    offered = [one.entry for one in await models.list() if not one.entry.unavailable_reason]
    if len(offered) != 1:
        names = ", ".join(entry.card.model_id for entry in offered)
        raise InvalidField("model", "", names, reason="MODEL_REQUIRED")
    return offered[0]
