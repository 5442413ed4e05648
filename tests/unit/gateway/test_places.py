"""Places for what lasts: so many in all, and a share for each tenant."""

from contextlib import ExitStack

import pytest

from fastvideo.errors import ResourceExhausted
from fastvideo_gateway.places import Places


def test_one_tenant_leaves_places_to_the_others_and_all_have_no_more_than_there_are() -> None:
    places = Places("callers", 4, 0.5, "poll instead")
    with ExitStack() as held:
        for tenant_id in ("a", "a", "b"):
            held.enter_context(places.taken(tenant_id))
        with pytest.raises(ResourceExhausted, match="tenant a has 2 callers") as caught:
            places.require("a")
        assert (caught.value.reason, caught.value.attributes) == ("TENANT_PLACES", {"limit": "2"})
        held.enter_context(places.taken("c"))
        with pytest.raises(ResourceExhausted, match="there are 4 callers") as caught:
            places.require("d")
        assert (caught.value.reason, caught.value.subject) == ("RESOURCE_EXHAUSTED", "callers")
    for tenant_id in ("a", "d"):
        places.require(tenant_id)
    assert not places._taken


def test_a_tenant_has_a_place_at_least_and_a_share_of_all_is_all() -> None:
    few = Places("uploads", 8, 0.01, "try again")
    with few.taken("a"), pytest.raises(ResourceExhausted):
        few.require("a")
    every = Places("uploads", 2, 1.0, "try again")
    with every.taken("a"), every.taken("a"), pytest.raises(ResourceExhausted, match="there are 2"):
        every.require("a")
