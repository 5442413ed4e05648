"""What users build on changes only on purpose."""

from tests.unit.house.surface import FROZEN, WITH_TORCH, has_torch, lines


def test_the_public_surface_is_what_the_frozen_list_says() -> None:
    frozen = {
        line
        for line in FROZEN.read_text().splitlines()
        if has_torch() or not line.startswith(WITH_TORCH)
    }
    now = set(lines())
    assert (sorted(frozen - now), sorted(now - frozen)) == ([], []), (
        "gone, new; run tests/unit/house/surface.py, and tell users in CHANGELOG.md"
    )
