"""The first layer that differs, in order of execution."""

from fastvideo.recompute.layers import differing, first_difference
from fastvideo.scheduling.traces import ComponentTrace


def traces(**digests: str) -> tuple[ComponentTrace, ...]:
    return tuple(
        ComponentTrace(component="transformer", layer=layer, calls=1, digest=digest)
        for layer, digest in digests.items()
    )


def test_the_first_in_order_of_the_original_is_named() -> None:
    then = traces(a="1", b="2", c="3")
    first = first_difference(then, traces(c="x", b="y", a="1"))
    assert first is not None
    assert first.layer == "b"
    assert differing(then, traces(c="x", b="y", a="1")) == 2


def test_equal_layers_have_no_first_difference() -> None:
    assert first_difference(traces(a="1"), traces(a="1")) is None


def test_a_layer_that_only_one_side_ran_says_nothing() -> None:
    then, now = traces(embedded="1", block="2"), traces(block="2", other="3")
    assert first_difference(then, now) is None
    assert differing(then, now) == 0


def test_calls_and_seconds_are_no_difference() -> None:
    one = ComponentTrace(component="vae", calls=1, seconds=0.1, digest="1")
    other = ComponentTrace(component="vae", calls=2, seconds=0.3, digest="1")
    assert first_difference([one], [other]) is None
