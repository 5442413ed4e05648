"""Old events read as new ones: a chain of steps from each released schema to today's.

What is only added to a message needs no step: protobuf reads it as absent. A step is for a
change of meaning: a unit, a split or merged field. It takes payload bytes and gives payload
bytes, so that it keeps no old dataclass alive. A type that means something else gets a new name
instead, and the old one stays readable.

    Upcast("RequestQueued", 1, position_from_one)  # schema 1 to 2
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from fastvideo.errors import ContractViolation, CorruptLog

UNKNOWN_SCHEMA: Final = "UNKNOWN_SCHEMA"
"""The reason of an error about an event that a newer program wrote."""


@dataclass(frozen=True, slots=True)
class Upcast:
    """One step: what a payload of one schema version of a type becomes in the next."""

    type: str
    from_version: int
    convert: Callable[[bytes], bytes]


class Upcasters:
    """All steps, checked: every released version leads to today's without a gap.

    `known` are today's types. A type that no step is for is at version 1. Raises
    ContractViolation for a gap, for two steps from one version, and for a step of a type that
    nobody knows.
    """

    def __init__(self, known: Iterable[str], steps: Iterable[Upcast] = ()) -> None:
        self._steps: dict[str, list[Upcast]] = {type_: [] for type_ in known}
        for step in sorted(steps, key=lambda step: step.from_version):
            if step.type not in self._steps:
                raise ContractViolation(f"a step is for {step.type}, which nobody knows")
            chain = self._steps[step.type]
            if step.from_version != len(chain) + 1:
                raise ContractViolation(
                    f"{step.type} has a step from {step.from_version}"
                    f" where {len(chain) + 1} is next"
                )
            chain.append(step)

    def version_of(self, type_: str) -> int:
        """The schema version in which a type is written today."""
        return len(self._steps[type_]) + 1

    @property
    def versions(self) -> Mapping[str, int]:
        """Today's schema version of each type."""
        return {type_: self.version_of(type_) for type_ in self._steps}

    def check_known(self, type_: str, version: int) -> None:
        """Raise as `bring_up` does."""
        if version < 1:
            raise CorruptLog(f"{type_} has no schema version {version}", subject=type_)
        if type_ not in self._steps or version > self.version_of(type_):
            raise CorruptLog(
                f"type {type_} of schema {version} is not known to this program",
                reason=UNKNOWN_SCHEMA,
                subject=type_,
            )

    def bring_up(self, type_: str, version: int, payload: bytes) -> bytes:
        """The payload as it would be written today.

        Raises CorruptLog: with the reason UNKNOWN_SCHEMA when a newer program wrote it, without
        for a version that never was.
        """
        steps = self._steps.get(type_)
        if steps is not None and version == len(steps) + 1:
            return payload
        self.check_known(type_, version)
        for step in self._steps[type_][version - 1 :]:
            payload = step.convert(payload)
        return payload
