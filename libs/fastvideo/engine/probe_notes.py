"""What a model measured of this machine when it was loaded, as results of a check."""

from typing import Final

from fastvideo.engine.instance import ModelInstance
from fastvideo.scheduling.traces import ParityChecked

# Entries of a fingerprint: how many rows of a shape may share a forward.
_EXACT_ROWS: Final = "exact_rows/"


def probe_checks(instance: ModelInstance) -> tuple[ParityChecked, ...]:
    """Whether rows that share a forward have the bits of forwards of their own here.

    Where they have not, exact requests take one row a forward. None for a family that measured
    nothing.
    """
    rows = {
        name: found for name, found in instance.fingerprint.items() if name.startswith(_EXACT_ROWS)
    }
    if not rows:
        return ()
    return (
        ParityChecked(
            model_id=instance.card.model_id,
            card_digest=instance.card_digest,
            rung="C0",
            subject="batch_invariance",
            reference="one row a forward",
            passed=all(int(found) > 1 for found in rows.values()),
            fingerprint=dict(instance.fingerprint),
        ),
    )
