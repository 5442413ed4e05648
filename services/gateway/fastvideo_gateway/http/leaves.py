"""The leaves of JSON records, and which of them differ.

Values stay what they are; `fastvideo.replay.differences` tells of typed values in words.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class ChangedLeaf:
    """A leaf that changed, such as "artifacts.0.digest"; None where it was or is absent."""

    path: str
    before: Any
    after: Any


def changed_leaves(before: Any, after: Any) -> tuple[ChangedLeaf, ...]:
    """The leaves that differ, in the order of the record after."""
    old, new = dict(_leaves(before, "")), dict(_leaves(after, ""))
    paths = [*new, *(path for path in old if path not in new)]
    return tuple(
        ChangedLeaf(path, old.get(path), new.get(path))
        for path in paths
        if old.get(path) != new.get(path)
    )


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{path}.{index}" if path else str(index))
    else:
        yield path, value
