"""Programs by an id of their own, beside their models."""

import pytest

from fastvideo.deployment.catalog import Catalog
from fastvideo.deployment.servables import find_servable, named_program, servables_of
from fastvideo.errors import InvalidField, NotFound
from fastvideo.requests.types import RequestKind

MODEL = "moving-digits"


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


def test_a_model_s_programs_are_found_by_the_ids_that_are_listed(catalog: Catalog) -> None:
    servables = servables_of(catalog.get(MODEL))
    assert {one.servable_id for one in servables} >= {
        f"{MODEL}/text_to_video",
        f"{MODEL}/image_to_video",
    }
    for one in servables:
        entry, program = find_servable(catalog, one.servable_id)
        assert (entry.card.model_id, program) == (MODEL, one.program)
    assert find_servable(catalog, MODEL) == (catalog.get(MODEL), None)


@pytest.mark.parametrize("name", ["another", "another/text_to_video", f"{MODEL}/sing", "/", ""])
def test_an_unknown_id_is_not_found(catalog: Catalog, name: str) -> None:
    with pytest.raises(NotFound) as refused:
        find_servable(catalog, name)
    assert refused.value.subject == "model_id"
    assert MODEL in refused.value.message


def test_what_a_request_says_beside_its_servable_agrees_with_it(catalog: Catalog) -> None:
    name = f"{MODEL}/image_to_video"
    _, program = find_servable(catalog, name)
    wanted = (RequestKind.GENERATION, "image_to_video")
    assert named_program(program, name, None, "") == wanted
    assert named_program(program, name, *wanted) == wanted
    assert named_program(None, MODEL, None, "text_to_video") == (None, "text_to_video")
    with pytest.raises(InvalidField, match="program_id"):
        named_program(program, name, None, "text_to_video")
    with pytest.raises(InvalidField, match="kind"):
        named_program(program, name, RequestKind.ENCODING, "")
