"""TransferScheduler: which values must move between workers before a loop can begin, in which
order, and what that costs.

A move is priced in seconds from its bytes, by what transfers took so far. Moves over one link,
a pair of workers, go one after another; links do not wait for each other. On a link the more
urgent request goes first, and of one request the shorter move, so that a loop that needs several
values waits for the sum and one that needs few does not wait for many.

Moves themselves run as units of the kinds transfer_send and transfer_recv, admitted against the
budget of bytes on their way.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fastvideo.errors import FailedPrecondition
from fastvideo.scheduling.work import LoopRef

PHASE: Final = "transfer_send"
"""The phase of the cost model that prices moves; its shapes are bytes."""

# Before anything was measured: a call on loopback and a memory copy there and back.
_LATENCY_S: Final = 0.002
_BYTES_PER_S: Final = 5e8

Price = Callable[[int], float]
"""Bytes to seconds; 0.0 where nothing is known."""


@dataclass(frozen=True, slots=True)
class Held:
    """Where a value is, and what it weighs."""

    worker_id: str
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One value from one worker to another."""

    # As "node.output".
    value: str
    source: str
    target: str
    size_bytes: int
    predicted_seconds: float


@dataclass(frozen=True, slots=True)
class TransferPlan:
    """The moves that a loop waits for; empty when its inputs are there."""

    moves: tuple[Move, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of all moves."""
        return sum(move.size_bytes for move in self.moves)

    @property
    def seconds(self) -> float:
        """Until the last value is there, when nothing else is on the links."""
        return max((slot.arrives_seconds for slot in schedule([(0, self)])), default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """A move at its time on its link, seconds from now."""

    move: Move
    starts_seconds: float
    arrives_seconds: float


class TransferScheduler:
    """Plans the moves that loops' inputs need."""

    def __init__(self, price: Price = lambda size_bytes: 0.0) -> None:
        self._price = price

    def plan(
        self, target_worker: str, inputs: Mapping[str, str], held: Mapping[str, Held]
    ) -> TransferPlan:
        """The moves for a loop on `target_worker`, the shortest first.

        `inputs` maps a value's name to "node.output", `held` that to where it is. Raises
        FailedPrecondition when a value is nowhere.
        """
        sources: dict[str, Held] = {}
        for name, value in inputs.items():
            holder = held.get(value)
            if holder is None:
                raise FailedPrecondition(
                    f"value {name} is on no worker", reason="VALUE_MISSING", subject=value
                )
            if holder.worker_id != target_worker:
                sources[value] = holder
        moves = [
            Move(
                value=value,
                source=holder.worker_id,
                target=target_worker,
                size_bytes=holder.size_bytes,
                predicted_seconds=self.price(holder.size_bytes),
            )
            for value, holder in sources.items()
        ]
        return TransferPlan(tuple(sorted(moves, key=_by_length)))

    def price(self, size_bytes: int) -> float:
        """Predicted seconds of a move."""
        return self._price(size_bytes) or _LATENCY_S + size_bytes / _BYTES_PER_S


def schedule(plans: Iterable[tuple[Any, TransferPlan]]) -> tuple[Slot, ...]:
    """When each move of several plans goes, in the order of their begins.

    Each plan comes with its urgency, smaller first, such as the request's `Rank`.
    """
    queue = sorted(
        ((urgency, _by_length(move), move) for urgency, plan in plans for move in plan.moves),
        key=lambda entry: entry[:2],
    )
    free_at: dict[tuple[str, str], float] = {}
    slots = []
    for _, _, move in queue:
        link = (move.source, move.target)
        starts = free_at.get(link, 0.0)
        free_at[link] = starts + move.predicted_seconds
        slots.append(Slot(move=move, starts_seconds=starts, arrives_seconds=free_at[link]))
    return tuple(sorted(slots, key=lambda slot: slot.starts_seconds))


def refuse_moves(loop: LoopRef, plan: TransferPlan) -> None:
    """Raise FailedPrecondition for a plan with moves: a request stays on one worker today."""
    if plan.moves:
        first = plan.moves[0]
        raise FailedPrecondition(
            f"{loop.node_id} needs {len(plan.moves)} values of other workers, the first "
            f"{first.value} of {first.source}; a request stays on one worker",
            reason="TRANSFER_UNSUPPORTED",
            subject=first.value,
            attributes={
                "bytes": str(plan.size_bytes),
                "predicted_seconds": f"{plan.seconds:.6f}",
            },
        )


def _by_length(move: Move) -> tuple[float, str]:
    return move.predicted_seconds, move.value
