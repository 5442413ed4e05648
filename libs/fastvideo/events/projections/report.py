"""What is told of a rebuild of a projection."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class RebuildPhase(StrEnum):
    """What a rebuild does now."""

    BUILDING = "building"
    COMPARING = "comparing"
    SWAPPING = "swapping"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionStatus:
    """How a projection stands."""

    name: str
    layout_version: int
    # By partition, the offset of the last event that it holds.
    positions: Mapping[int, int]
    # Events of the log that it does not hold yet.
    events_behind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildProgress:
    """How far a rebuild is."""

    phase: RebuildPhase
    events_done: int
    # What the live projection holds.
    events_total: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TableComparison:
    """A table of a projection, in the copy that is read and in the one that was built."""

    table: str
    rows_live: int
    rows_built: int
    # SHA-256 over the rows in the order of their keys, hexadecimal.
    digest_live: str
    digest_built: str
    # The key of the first row that differs, as text; empty when none does.
    first_difference: str

    @property
    def equal(self) -> bool:
        """Whether both hold the same rows."""
        return self.digest_live == self.digest_built


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildReport:
    """What a rebuild found and did."""

    projection: str
    layout_version: int
    # By partition, the offset at which both were compared.
    positions: Mapping[int, int]
    tables: tuple[TableComparison, ...]
    # Whether the rows were the same.
    equal: bool
    # Whether the built rows are the live ones now.
    swapped: bool
    events: int
    seconds: float
