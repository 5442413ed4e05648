"""What users build on changes only on purpose."""

from tests.unit.house.surface import FROZEN, lines


def test_the_public_surface_is_what_the_frozen_list_says() -> None:
    now, frozen = lines(), FROZEN.read_text().splitlines()
    gone, new = sorted(set(frozen) - set(now)), sorted(set(now) - set(frozen))
    assert (gone, new) == ([], []), (
        "run tests/unit/house/surface.py, and tell users in CHANGELOG.md"
    )
