"""The shipped cards, as the scheduler sees them."""

import pytest

from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import NotFound
from fastvideo.scheduling.deployed import DeployedModels
from fastvideo.scheduling.request_scheduler import program_graph

CATALOG = Catalog.load()
MODELS = DeployedModels(CATALOG)


@pytest.mark.parametrize(
    ("model_id", "program_id"),
    [(entry.card.model_id, name) for entry in CATALOG.entries for name in entry.programs],
)
def test_every_shipped_program_can_be_scheduled(model_id, program_id):
    graph = program_graph(MODELS.program(model_id, program_id))
    assert graph.startable(begun=(), ended=())


def test_every_loop_of_a_card_has_a_first_price():
    for entry in CATALOG.entries:
        for loop in entry.card.loops.values():
            assert MODELS.cost_prior(entry.card.model_id, loop.cost.phase) == loop.cost


def test_what_no_card_has_is_not_found():
    with pytest.raises(NotFound):
        MODELS.program("moving-digits", "other")
    with pytest.raises(NotFound):
        MODELS.program("other", "text_to_video")
    assert MODELS.cost_prior("other", "denoise") is None
