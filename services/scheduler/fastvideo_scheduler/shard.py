"""A shard: leads while it holds the lease, stands by while another does."""

from fastvideo.events.leadership import lead
from fastvideo.events.records import Lease
from fastvideo.scheduling.stream import shard_stream
from fastvideo_scheduler.leader import Leader, LeaderParts


class Shard:
    """This process's part in a shard."""

    def __init__(self, parts: LeaderParts, *, holder: str, lease_ttl_s: float) -> None:
        self._parts = parts
        self._holder = holder
        self._lease_ttl_s = lease_ttl_s
        self._leader: Leader | None = None

    @property
    def scheduler_id(self) -> str:
        """The name of this scheduler."""
        return self._parts.scheduler_id

    @property
    def leader(self) -> Leader | None:
        """The leader of the present term; None while this is a standby."""
        return self._leader

    @property
    def name(self) -> str:
        """Of its stream and of its lease."""
        return shard_stream(self._parts.shard)

    async def run(self) -> None:
        """Lead whenever the lease is to be had, for ever; gives it back when cancelled."""
        await lead(self._parts.store, self.name, self._holder, self._term, ttl_s=self._lease_ttl_s)

    async def _term(self, lease: Lease) -> None:
        self._leader = leader = Leader(self._parts, lease)
        try:
            await leader.run()
        finally:
            self._leader = None
