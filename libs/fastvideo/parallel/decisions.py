"""One decision for all ranks: what rank 0 decided, or an abort that any rank asked for.

Ranks of a model run the same program on parts of the tensors, and meet in collectives inside a
step. A rank that left on its own would leave the others waiting in one. So they decide together,
at boundaries between steps:

    verdict = ranks.decide(command if ranks.rank == 0 else None, abort=what_went_wrong)
    if verdict.aborted:
        ...  # on every rank, at this boundary
    else:
        run(verdict.decision)  # the bytes of rank 0

Every rank calls `decide` at every boundary. The same boundary has the same verdict everywhere.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import torch
import torch.distributed as dist

from fastvideo.errors import ContractViolation, ResourceExhausted, Unavailable

DECISION_BYTES_MAX: Final = 1 << 20
REASON_CHARACTERS_MAX: Final = 500

_NO_ABORT: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What all ranks do next."""

    # Counts up from 0; the same on every rank.
    boundary: int
    # Rank 0's bytes; empty after an abort.
    decision: bytes = b""
    # The lowest rank that asked for an abort, and why; None when nobody did.
    aborted_by: int | None = None
    reason: str = ""

    @property
    def aborted(self) -> bool:
        """Whether the run ends at this boundary, on every rank."""
        return self.aborted_by is not None


class Ranks:
    """The ranks of one process group, each in a process of its own.

    Used from one thread a rank. Every wait is bounded by the group's timeout.
    """

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self._group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self._boundary = 0

    @classmethod
    def join(cls, address: str, rank: int, size: int, timeout_s: float) -> "Ranks":
        """Meet the other ranks at HOST:PORT, which rank 0 listens on.

        Raises Unavailable when they do not all come within the time.
        """
        try:
            dist.init_process_group(
                "gloo",
                init_method=f"tcp://{address}",
                rank=rank,
                world_size=size,
                timeout=timedelta(seconds=timeout_s),
            )
        except (RuntimeError, dist.DistError) as error:
            raise Unavailable(
                f"rank {rank} of {size} did not meet the others within {timeout_s:g} s",
                reason="RANKS_APART",
                subject=str(rank),
            ) from error
        return cls()

    def leave(self) -> None:
        """Let go of the others."""
        dist.destroy_process_group(self._group)

    def decide(self, decision: bytes | None = None, *, abort: str = "") -> Verdict:
        """The verdict of this boundary; blocks until every rank is there.

        `decision` is rank 0's alone, and must be given there. An `abort` of any rank wins; of
        several the lowest rank's reason is told. Raises ContractViolation when ranks are at
        different boundaries, Unavailable when one does not come in time.
        """
        self._check(decision)
        try:
            return self._decide(decision or b"", abort[:REASON_CHARACTERS_MAX].encode())
        except (RuntimeError, dist.DistError) as error:
            raise Unavailable(
                f"a rank did not come to boundary {self._boundary}",
                reason="RANKS_APART",
                subject=str(self.rank),
            ) from error

    def _decide(self, decision: bytes, reason: bytes) -> Verdict:
        boundary, self._boundary = self._boundary, self._boundary + 1
        wants = self.rank if reason else _NO_ABORT
        own = torch.tensor([boundary, wants, len(reason), len(decision)])
        told = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(told, own, group=self._group)
        boundaries = sorted({int(each[0]) for each in told})
        if len(boundaries) > 1:
            raise ContractViolation(
                f"ranks are at boundaries {boundaries}", reason="RANKS_APART", subject="boundary"
            )
        aborting = [int(each[1]) for each in told if int(each[1]) != _NO_ABORT]
        if not aborting:
            return Verdict(boundary=boundary, decision=self._bytes_of(0, decision, int(told[0][3])))
        first = min(aborting)
        why = self._bytes_of(first, reason, int(told[first][2]))
        return Verdict(boundary=boundary, aborted_by=first, reason=why.decode(errors="replace"))

    def _bytes_of(self, rank: int, own: bytes, size: int) -> bytes:
        """A rank's bytes, on every rank."""
        if size == 0:
            return b""
        data = torch.zeros(size, dtype=torch.uint8)
        if rank == self.rank:
            data = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        dist.broadcast(data, group_src=rank, group=self._group)
        return data.numpy().tobytes()

    def _check(self, decision: bytes | None) -> None:
        if (decision is None) is (self.rank == 0):
            raise ContractViolation(
                f"rank {self.rank} {'gives no' if decision is None else 'gives a'} decision; "
                "rank 0 decides",
                subject="decision",
            )
        if decision is not None and len(decision) > DECISION_BYTES_MAX:
            raise ResourceExhausted(
                f"a decision of {len(decision)} bytes; the most is {DECISION_BYTES_MAX}",
                subject="decision",
            )
