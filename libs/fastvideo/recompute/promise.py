"""What may be expected of bits computed here: the environment then and now."""

from collections.abc import Mapping
from typing import Final

from fastvideo.model.specs import ModelSpec
from fastvideo.replay.types import LoggedRun, Promise

BITS: Final = "bits"
TOLERANCE: Final = "tolerance"
NONE: Final = "none"

BITS_DEPEND_ON: Final = (
    "fastvideo",
    "torch",
    "diffusers",
    "transformers",
    "cpu",
    "instruction_set",
    "threads",
)
"""Entries of a machine's fingerprint that can change the bits of a state."""

FILES_DEPEND_ON: Final = ("av", "safetensors")
"""And those that can change the bytes of a file that is made of equal values."""

_OF_STATES: Final = ("latents", "trajectory")


def promise_of(
    run: LoggedRun,
    fingerprint: Mapping[str, str],
    card: ModelSpec,
    *,
    card_digest: str,
    weights_version: str,
    tolerance: float = 0.0,
) -> Promise:
    """What a replay on a machine of a fingerprint may be held to.

    Bits, where all that they depend on is as it was; else the tolerance that is given, or the
    card's for its latents. Nothing is promised of other weights or another card: every difference
    counts then. Entries that one side does not have say nothing.
    """
    then = dict(run.fingerprint)
    model = f"{run.spec.model_id}/"
    names = [*BITS_DEPEND_ON, *sorted(name for name in then if name.startswith(model))]
    changed = {
        name: f"{then[name]} -> {fingerprint[name]}"
        for name in names
        if name in then and name in fingerprint and then[name] != fingerprint[name]
    }
    other = {
        name: f"{before} -> {now}"
        for name, before, now in (
            ("weights_version", run.instance.weights_version, weights_version),
            ("card_digest", run.instance.card_digest, card_digest),
        )
        if before and before != now
    }
    if other:
        return Promise(
            kind=NONE,
            reason=f"this is another model than the one that ran: {_words(other)} differ",
            differences={**other, **changed},
        )
    if changed:
        allowed = tolerance or card_tolerance(card)
        return Promise(
            kind=TOLERANCE,
            tolerance=allowed,
            reason=f"the environment is another one: {_words(changed)} differ; "
            f"latents may be {allowed:g} apart",
            differences=changed,
        )
    known = [name for name in names if name in then]
    if not known:
        return Promise(
            kind=TOLERANCE,
            tolerance=tolerance or card_tolerance(card),
            reason="the log does not say on what environment it ran",
        )
    return Promise(kind=BITS, reason=f"weights, card and environment agree ({', '.join(known)})")


def files_promised(run: LoggedRun, fingerprint: Mapping[str, str]) -> bool:
    """Whether files made of equal values have equal bytes."""
    return all(
        run.fingerprint.get(name) == fingerprint.get(name)
        for name in FILES_DEPEND_ON
        if name in run.fingerprint
    )


def card_tolerance(card: ModelSpec) -> float:
    """The largest absolute difference of latents that a card allows against its reference."""
    return max(
        (test.max_abs_difference for test in card.parity.tests if test.name in _OF_STATES),
        default=0.0,
    )


def _words(changed: Mapping[str, str]) -> str:
    return ", ".join(changed)
