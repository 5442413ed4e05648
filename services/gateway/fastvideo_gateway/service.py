"""GatewayService: the gRPC face of submit, get, list, watch, cancel and the models."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import lru_cache

from fastvideo import wire
from fastvideo.api.common.v1 import request_pb2, work_pb2
from fastvideo.api.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from fastvideo.errors import InvalidField
from fastvideo.events.catalog import message_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.store import EventLog
from fastvideo.requests.standing import Standings
from fastvideo.requests.types import RequestStatus
from fastvideo.rpc.identity import current_tenant, require_operator
from fastvideo.rpc.names import check_name, require_name
from fastvideo.rpc.unknown_fields import refuse_unknown_fields
from fastvideo.scheduling.work import CancelScope, CancelScopeKind
from fastvideo_gateway.cancellation import SCOPES, Canceller
from fastvideo_gateway.deletion import Deleter
from fastvideo_gateway.deployment import Engines
from fastvideo_gateway.explaining import Explainer
from fastvideo_gateway.listing import Lister
from fastvideo_gateway.models import ModelDirectory, ModelStatus
from fastvideo_gateway.parity import ParityRecorder
from fastvideo_gateway.submission import Submitter
from fastvideo_gateway.watching import WATCHED_EVENTS_MAX, WatchHub


@dataclass(frozen=True, slots=True)
class GatewayParts:
    """What the service is made of."""

    log: EventLog
    submitter: Submitter
    standings: Standings
    lister: Lister
    canceller: Canceller
    deleter: Deleter
    watches: WatchHub
    explainer: Explainer
    models: ModelDirectory
    parity: ParityRecorder
    engines: Engines


class GatewayService(gateway_pb2_grpc.GatewayServiceServicer):
    """Messages in, messages out; typed errors become statuses in the server's interceptor.

    A call that its client's deadline ends is cancelled by gRPC, whatever it waits for.
    """

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts
        # Many may watch one request.
        self._watched = lru_cache(WATCHED_EVENTS_MAX)(_watched)

    async def SubmitRequest(
        self, request: gateway_pb2.SubmitRequestRequest, context: object
    ) -> gateway_pb2.SubmitRequestResponse:
        refuse_unknown_fields(request)
        submitted = await self._parts.submitter.submit(request, current_tenant())
        return gateway_pb2.SubmitRequestResponse(
            state=wire.to_proto(submitted.state), repeated=submitted.repeated
        )

    async def GetRequest(
        self, request: gateway_pb2.GetRequestRequest, context: object
    ) -> gateway_pb2.GetRequestResponse:
        refuse_unknown_fields(request)
        require_name("request_id", request.request_id, "the id of a request")
        # Read from the log, not from the index: what was accepted is found at once.
        state = await self._parts.standings.visible(request.request_id, current_tenant())
        return gateway_pb2.GetRequestResponse(state=wire.to_proto(state))

    async def ListRequests(
        self, request: gateway_pb2.ListRequestsRequest, context: object
    ) -> gateway_pb2.ListRequestsResponse:
        refuse_unknown_fields(request)
        check_name("session_id", request.session_id)
        page = await self._parts.lister.page(
            current_tenant(),
            page_size=request.page_size,
            token=request.page_token,
            status=wire.enum_from_proto(
                RequestStatus, request_pb2.RequestStatus.DESCRIPTOR, request.status, "status"
            ),
            session_id=request.session_id,
        )
        return gateway_pb2.ListRequestsResponse(
            states=[wire.to_proto(state) for state in page.states],
            next_page_token=page.next_page_token,
        )

    async def WatchRequest(
        self, request: gateway_pb2.WatchRequestRequest, context: object
    ) -> AsyncIterator[gateway_pb2.WatchRequestResponse]:
        refuse_unknown_fields(request)
        require_name("request_id", request.request_id, "the id of a request")
        events = self._parts.watches.watch(
            request.request_id, request.after_sequence, current_tenant()
        )
        async for stored in events:
            yield self._watched(stored)

    async def CancelRequest(
        self, request: gateway_pb2.CancelRequestRequest, context: object
    ) -> gateway_pb2.CancelRequestResponse:
        refuse_unknown_fields(request)
        scope = _scope(request.scope)
        state = await self._parts.canceller.cancel(scope, request.reason, current_tenant())
        return gateway_pb2.CancelRequestResponse(
            state=None if state is None else wire.to_proto(state)
        )

    async def DeleteRequest(
        self, request: gateway_pb2.DeleteRequestRequest, context: object
    ) -> gateway_pb2.DeleteRequestResponse:
        refuse_unknown_fields(request)
        require_name("request_id", request.request_id, "the id of a request")
        deleted_at = await self._parts.deleter.delete(request.request_id, current_tenant())
        response = gateway_pb2.DeleteRequestResponse(request_id=request.request_id)
        response.deleted_at.FromDatetime(deleted_at)
        return response

    async def ExplainRequest(
        self, request: gateway_pb2.ExplainRequestRequest, context: object
    ) -> gateway_pb2.ExplainRequestResponse:
        refuse_unknown_fields(request)
        require_name("request_id", request.request_id, "the id of a request")
        explained = await self._parts.explainer.explain(
            request.request_id,
            current_tenant(),
            page_size=request.page_size,
            token=request.page_token,
        )
        return gateway_pb2.ExplainRequestResponse(
            explanation=wire.to_proto(explained.explanation),
            next_page_token=explained.next_page_token,
        )

    async def RecordParity(
        self, request: gateway_pb2.RecordParityRequest, context: object
    ) -> gateway_pb2.RecordParityResponse:
        refuse_unknown_fields(request)
        await self._parts.parity.record(request, current_tenant())
        return gateway_pb2.RecordParityResponse()

    async def GetDeployment(
        self, request: gateway_pb2.GetDeploymentRequest, context: object
    ) -> gateway_pb2.GetDeploymentResponse:
        refuse_unknown_fields(request)
        # Addresses and load are nobody's business but theirs who run it.
        require_operator()
        offers = await self._parts.engines.offers()
        return gateway_pb2.GetDeploymentResponse(engines=map(wire.to_proto, offers))

    async def ListModels(
        self, request: gateway_pb2.ListModelsRequest, context: object
    ) -> gateway_pb2.ListModelsResponse:
        refuse_unknown_fields(request)
        models = await self._parts.models.list()
        return gateway_pb2.ListModelsResponse(models=map(_summary, models))

    async def DescribeModel(
        self, request: gateway_pb2.DescribeModelRequest, context: object
    ) -> gateway_pb2.DescribeModelResponse:
        refuse_unknown_fields(request)
        require_name("model_id", request.model_id, "the id of a model")
        model, servable = await self._parts.models.find(request.model_id)
        programs = model.entry.programs.values() if servable is None else (servable.program,)
        return gateway_pb2.DescribeModelResponse(
            spec=wire.to_proto(model.entry.card),
            card_digest=model.entry.card_digest,
            ready=model.ready,
            unavailable_reason=model.entry.unavailable_reason,
            programs=[wire.to_proto(program) for program in programs],
        )


def _watched(stored: StoredEvent) -> gateway_pb2.WatchRequestResponse:
    return gateway_pb2.WatchRequestResponse(
        sequence=stored.stream_version, event=message_of(stored)
    )


def _summary(model: ModelStatus) -> gateway_pb2.ModelSummary:
    card = model.entry.card
    return gateway_pb2.ModelSummary(
        model_id=card.model_id,
        family=card.family,
        description=card.description,
        capabilities=card.capabilities.capabilities,
        ready=model.ready,
        unavailable_reason=model.entry.unavailable_reason,
        servables=[
            gateway_pb2.ServableSummary(
                servable_id=servable.servable_id,
                program_id=servable.program.program_id,
                kind=wire.to_proto(servable.program).kind,
                request_kind=wire.to_proto(servable.program).request_kind,
                capability=servable.program.capability,
                is_default=servable.program.is_default,
            )
            for servable in model.servables
        ],
    )


def _scope(message: work_pb2.CancelScope) -> CancelScope:
    kinds = work_pb2.CancelScopeKind.DESCRIPTOR
    kind = wire.enum_from_proto(CancelScopeKind, kinds, message.kind, "scope.kind")
    if kind is None:
        raise InvalidField("scope.kind", "unspecified", " or ".join(SCOPES))
    return CancelScope(kind=kind, target_id=message.target_id)
