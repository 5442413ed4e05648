"""TransferScheduler: which values must move between workers before a loop can begin.

Today a request's values stay on one worker, so the only plan is "nothing moves"; anything
else is refused by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fastvideo.errors import FailedPrecondition


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """The values that must move, as "node.output", and where they are; empty when none."""

    moves: tuple[tuple[str, str], ...] = ()


class TransferScheduler:
    """Plans the moves that a loop's inputs need."""

    def plan(
        self, target_worker: str, inputs: Mapping[str, str], holders: Mapping[str, str]
    ) -> TransferPlan:
        """The plan for a loop on `target_worker`.

        `inputs` maps a value's name to "node.output"; `holders` maps a node to the worker
        that has its outputs. Raises FailedPrecondition when a value is elsewhere.
        """
        for value, source in inputs.items():
            node_id = source.partition(".")[0]
            holder = holders.get(node_id)
            if holder != target_worker:
                raise FailedPrecondition(
                    f"value {value} is on worker {holder or 'none'} and the loop on "
                    f"{target_worker}; values do not move between workers yet",
                    reason="TRANSFER_UNSUPPORTED",
                    subject=source,
                )
        return TransferPlan()
