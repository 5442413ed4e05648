"""SchedulerService: workers announce themselves; whoever asks learns how the shard stands."""

import asyncio
from typing import Any

from fastvideo import wire
from fastvideo.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc
from fastvideo.deployment.catalog import Catalog
from fastvideo.rpc.names import NAME_CHARACTERS_MAX, require_name
from fastvideo_scheduler.card import engine_offer
from fastvideo_scheduler.leader import Leader
from fastvideo_scheduler.shard import Shard
from fastvideo_scheduler.stream import WorkerAddress

Context = Any


class SchedulerService(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Answers for one shard, leading or standing by."""

    def __init__(self, shard: Shard, catalog: Catalog) -> None:
        self._shard = shard
        self._catalog = catalog

    async def AnnounceWorker(
        self, request: scheduler_pb2.AnnounceWorkerRequest, context: Context
    ) -> scheduler_pb2.AnnounceWorkerResponse:
        """Dial the worker, unless this is a standby or it was dialled before."""
        for field in ("worker_id", "address", "incarnation"):
            allowed = f"1 to {NAME_CHARACTERS_MAX} printable characters"
            require_name(field, getattr(request, field), allowed)
        leader = self._shard.leader
        if leader is None:
            return scheduler_pb2.AnnounceWorkerResponse(attached=False, leader=False)
        worker = WorkerAddress(request.worker_id, request.address, request.incarnation)
        attached = await leader.fleet.announce(worker)
        return scheduler_pb2.AnnounceWorkerResponse(attached=attached, leader=True)

    async def GetStatus(
        self, request: scheduler_pb2.GetStatusRequest, context: Context
    ) -> scheduler_pb2.GetStatusResponse:
        """How the shard stands; a standby knows only that it is one."""
        leader = self._shard.leader
        if leader is None:
            return scheduler_pb2.GetStatusResponse(scheduler_id=self._shard.scheduler_id)
        core = leader.core
        return scheduler_pb2.GetStatusResponse(
            scheduler_id=self._shard.scheduler_id,
            leader=True,
            epoch=leader.epoch,
            workers=_workers(leader),
            live_requests=core.live_requests,
            queued_requests=core.queued_requests,
            reserved=core.reserved,
            prediction_error=core.prediction_error,
            predictions=core.predictions,
        )

    async def GetDeploymentCard(
        self, request: scheduler_pb2.GetDeploymentCardRequest, context: Context
    ) -> scheduler_pb2.GetDeploymentCardResponse:
        """What the attached workers offer; empty of models on a standby."""
        leader = self._shard.leader
        offer = await engine_offer(
            self._shard.scheduler_id, self._catalog, leader.core if leader is not None else None
        )
        # Thousands of prices become messages beside whatever is decided meanwhile.
        card = await asyncio.to_thread(wire.to_proto, offer.card)
        return scheduler_pb2.GetDeploymentCardResponse(
            card=card,
            load=wire.to_proto(offer.load),
            leader=leader is not None,
        )


def _workers(leader: Leader) -> list[scheduler_pb2.WorkerStatus]:
    attached = {view.worker_id: view for view in leader.core.workers}
    statuses = []
    for link in leader.fleet.links:
        view = attached.get(link.worker.worker_id)
        statuses.append(
            scheduler_pb2.WorkerStatus(
                worker_id=link.worker.worker_id,
                address=link.worker.address,
                attached=link.attached,
                models=view.models if view is not None else (),
                loops=view.loops if view is not None else 0,
                batches_in_flight=view.batches_in_flight if view is not None else 0,
            )
        )
    return statuses
