"""The newest epoch that a worker has seen: older schedulers are refused."""

from typing import Final

from fastvideo.errors import Fenced, InvalidField

# Elections between two schedulers that one worker sees; a day of one a second.
EPOCHS_AHEAD_MAX: Final = 100_000


class Fence:
    """Remembers the newest epoch.

    An epoch rises by one at each election, so one that is far ahead is no election but a
    mistake, and would lock out every true leader until the worker starts anew.
    """

    def __init__(self) -> None:
        self._newest = 0

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        return self._newest

    def check(self, epoch: int) -> bool:
        """Whether the epoch is newer than any before.

        Raises Fenced when it is older, InvalidField when it is too far ahead of one seen before.
        """
        if epoch < self._newest:
            raise Fenced(
                f"epoch {epoch} is over, {self._newest} has begun",
                subject="epoch",
                attributes={"epoch": str(self._newest)},
            )
        if self._newest and epoch > self._newest + EPOCHS_AHEAD_MAX:
            raise InvalidField(
                "epoch", epoch, f"at most {EPOCHS_AHEAD_MAX} ahead of {self._newest}"
            )
        newer = epoch > self._newest
        self._newest = epoch
        return newer
