"""How many frames a video of a length has."""

import math

from fastvideo.errors import InvalidField
from fastvideo.model.specs import ModelSpec


def frames_of(card: ModelSpec, field: str, duration_s: float, fps: int | None) -> int:
    """The allowed number of frames that is nearest to a duration.

    `fps` None takes the card's default. Raises InvalidField, naming the field, for a duration
    that is none, and for one that is too long for the card.
    """
    if not 0 < duration_s < math.inf:
        raise InvalidField(field, duration_s, "seconds, more than 0")
    rate = fps if fps is not None else card.sampling["fps"].default_value
    allowed = card.sampling["num_frames"]
    step = allowed.multiple_of or 1
    if duration_s * rate >= allowed.maximum + step:
        raise InvalidField(field, duration_s, f"at most {allowed.maximum / rate:g} seconds")
    count = allowed.offset + step * round((duration_s * rate - allowed.offset) / step)
    return int(max(count, allowed.minimum))
