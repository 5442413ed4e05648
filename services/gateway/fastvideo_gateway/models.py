"""Which models there are, and which a worker serves now."""

from dataclasses import dataclass

from fastvideo.deployment.catalog import Catalog, CatalogEntry
from fastvideo.deployment.servables import Servable, find_servable, servables_of
from fastvideo_gateway.index import RequestIndex


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A model of the catalog and whether a request for it would find a worker."""

    entry: CatalogEntry
    ready: bool

    @property
    def servables(self) -> tuple[Servable, ...]:
        """What can be asked of it by an id of its own; nothing of a model that is not served."""
        return () if self.entry.unavailable_reason else servables_of(self.entry)


class ModelDirectory:
    """The catalog beside the workers that are attached."""

    def __init__(self, catalog: Catalog, index: RequestIndex) -> None:
        self._catalog = catalog
        self._index = index

    async def list(self) -> tuple[ModelStatus, ...]:
        """All models, by id."""
        served = await self._served()
        return tuple(_status(entry, served) for entry in self._catalog.entries)

    async def find(self, name: str) -> tuple[ModelStatus, Servable | None]:
        """The model of an id, and the servable when it is the id of one. Raises NotFound."""
        entry, program = find_servable(self._catalog, name)
        status = _status(entry, await self._served())
        return status, None if program is None else Servable(entry, program)

    async def _served(self) -> frozenset[tuple[str, str]]:
        """Id and card digest of every instance on an attached worker."""
        workers = await self._index.attached_workers()
        return frozenset(
            (instance.model_id, instance.card_digest)
            for worker in workers
            for instance in worker.instances
        )


def _status(entry: CatalogEntry, served: frozenset[tuple[str, str]]) -> ModelStatus:
    # An instance of another card cannot take this one's requests.
    ready = not entry.unavailable_reason and (entry.card.model_id, entry.card_digest) in served
    return ModelStatus(entry, ready)
