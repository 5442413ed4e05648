"""The newest epoch that a worker has seen: older schedulers are refused."""

from fastvideo.errors import Fenced


class Fence:
    """Remembers the newest epoch."""

    def __init__(self) -> None:
        self._newest = 0

    @property
    def epoch(self) -> int:
        """The newest epoch."""
        return self._newest

    def check(self, epoch: int) -> bool:
        """Whether the epoch is newer than any before. Raises Fenced when it is older."""
        if epoch < self._newest:
            raise Fenced(
                f"epoch {epoch} is over, {self._newest} has begun",
                subject="epoch",
                attributes={"epoch": str(self._newest)},
            )
        newer = epoch > self._newest
        self._newest = epoch
        return newer
