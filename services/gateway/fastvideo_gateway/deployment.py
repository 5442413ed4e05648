"""What the engines behind this gateway offer: asked of the schedulers, kept nowhere."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import grpc

from fastvideo import wire
from fastvideo.api.common.v1 import deployment_pb2
from fastvideo.api.scheduler.v1 import scheduler_pb2
from fastvideo.deployment.card import EngineOffer
from fastvideo.errors import FailedPrecondition, Unavailable
from fastvideo.telemetry.logging import get_logger

if TYPE_CHECKING:
    from fastvideo.api.scheduler.v1.scheduler_pb2_grpc import SchedulerServiceAsyncStub

_LOG: Final = get_logger(__name__)

ANSWER_S_MAX: Final = 3.0


class Engines:
    """The schedulers by address; of each shard the one that leads answers for its workers."""

    def __init__(self, schedulers: Mapping[str, "SchedulerServiceAsyncStub"]) -> None:
        self._schedulers = schedulers

    async def offers(self) -> tuple[EngineOffer, ...]:
        """Card and load of every engine that is led now, by engine id.

        Raises FailedPrecondition when no scheduler is configured, and Unavailable when none
        answers.
        """
        if not self._schedulers:
            raise FailedPrecondition(
                "this gateway knows no scheduler; set FASTVIDEO_SCHEDULER_ADDRESSES",
                reason="NO_SCHEDULERS",
                subject="schedulers",
            )
        answers = await asyncio.gather(*map(self._ask, self._schedulers))
        if all(answer is None for answer in answers):
            raise Unavailable("no scheduler answers", reason="NO_SCHEDULER", subject="schedulers")
        offers = [
            wire.from_proto(
                EngineOffer, deployment_pb2.EngineOffer(card=answer.card, load=answer.load)
            )
            for answer in answers
            if answer is not None and answer.leader
        ]
        return tuple(sorted(offers, key=lambda offer: offer.card.engine_id))

    async def _ask(self, address: str) -> scheduler_pb2.GetDeploymentCardResponse | None:
        request = scheduler_pb2.GetDeploymentCardRequest()
        try:
            return await self._schedulers[address].GetDeploymentCard(request, timeout=ANSWER_S_MAX)
        except grpc.RpcError as error:
            # Another of the shard may lead.
            _LOG.warning("a scheduler does not answer", address=address, error=str(error.code()))
            return None
