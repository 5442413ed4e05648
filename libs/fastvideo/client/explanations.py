"""Why a request took so long: an explanation, its units gathered page by page."""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from fastvideo import wire
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.client import cards
from fastvideo.client.calls import Calls
from fastvideo.client.generation import same_fields
from fastvideo.client.submission import filled, instance
from fastvideo.explain.types import ExplainedUnit, Explanation

if TYPE_CHECKING:
    from fastvideo.api.gateway.v1.gateway_pb2_grpc import GatewayServiceAsyncStub

UNITS_PER_PAGE: Final = 2_000
# The server may have to read much of the log.
TIMEOUT_S_MIN: Final = 60.0


class Explained(Explanation):
    """An `Explanation` that a prompt and a notebook show as its sentence and where time went."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Explanation):
            return NotImplemented
        return same_fields(self, other, Explanation)

    __hash__ = Explanation.__hash__

    def __repr__(self) -> str:
        return cards.explanation_text(self)

    def _repr_html_(self) -> str:
        return cards.explanation_html(self)


async def explain(
    stub: "GatewayServiceAsyncStub", request_id: str, units_max: int, calls: Calls
) -> Explained:
    """The explanation with the first `units_max` units, and the batches that these name."""
    timeout_s = max(calls.policy.timeout_s, TIMEOUT_S_MIN)
    units: dict[str, ExplainedUnit] = {}
    pages: list[Explained] = []
    token = ""
    while True:
        left = max(1, instance("units_max", units_max, int) - len(units))
        request = filled(
            gateway_pb2.ExplainRequestRequest(page_size=min(left, UNITS_PER_PAGE)),
            request_id=request_id,
            page_token=token,
        )
        answer = await calls(stub.ExplainRequest, request, timeout_s)
        page = wire.from_proto(Explained, answer.explanation)
        pages.append(page)
        units |= {unit.unit_id: unit for unit in page.units}
        token = answer.next_page_token
        if not token or len(units) >= units_max:
            break
    batches = {batch.batch_id: batch for page in pages for batch in page.batches}
    # The last page knows most of a request that still runs.
    return replace(
        pages[-1], units=tuple(units.values())[:units_max], batches=tuple(batches.values())
    )
