"""A move from one place to another, noted from its start to its end."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from fastvideo.errors import FastVideoError
from fastvideo.model.transfers import TransferManifest
from fastvideo.requests.failures import error_detail
from fastvideo.requests.types import ErrorDetail
from fastvideo.scheduling.traces import TransferRecorded, TransferState


@dataclass(slots=True, kw_only=True)
class Move:
    """What moves; whoever moves it fills in what he learns on the way."""

    manifest: TransferManifest
    request_id: str = ""
    # The unit that moves it, if one does.
    unit_id: str = ""
    size_bytes: int = 0

    def note(
        self, state: TransferState, seconds: float = 0.0, error: ErrorDetail | None = None
    ) -> TransferRecorded:
        """The note of how far it is."""
        return TransferRecorded(
            manifest=self.manifest,
            state=state,
            request_id=self.request_id,
            unit_id=self.unit_id,
            size_bytes=self.size_bytes,
            seconds=seconds,
            error=error,
        )


@contextmanager
def recorded(
    move: Move, note: Callable[[TransferRecorded], None], monotonic_s: Callable[[], float]
) -> Iterator[Move]:
    """Note that the move begins, and whether the block brought it to its end."""
    note(move.note(TransferState.STARTED))
    began_s = monotonic_s()
    try:
        yield move
    except Exception as error:
        note(move.note(TransferState.FAILED, monotonic_s() - began_s, _detail(error)))
        raise
    note(move.note(TransferState.COMPLETED, monotonic_s() - began_s))


def _detail(error: Exception) -> ErrorDetail:
    if isinstance(error, FastVideoError):
        return error_detail(error)
    return ErrorDetail(reason="INTERNAL", message=f"internal error ({type(error).__name__})")
