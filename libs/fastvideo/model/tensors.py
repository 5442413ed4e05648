"""The declared form of tensors that cross a boundary.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSchema:
    """The declared form of one tensor that crosses a boundary."""

    name: str = ""
    # Named dimensions in order, such as "B", "C", "T", "H", "W".
    dims: tuple[str, ...] = ()
    # Such as "float32".
    dtype: str = ""
