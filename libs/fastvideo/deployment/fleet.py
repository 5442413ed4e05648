"""Which engine a request goes to: the one that is predicted to have it done first.

    route = choose(spec, offers)
    route.engine_id, route.candidates

An engine offers its deployment card and its load (`deployment.card.EngineOffer`). What cannot run
the request is passed over with the reason; of the others each is predicted to take

    backlog / compute slots  +  device-seconds of the request  -  what is cached there

The device-seconds are `scheduling.cost.price_request` over the card's cost model: the function
and the model by which the engine itself admits and places. An engine that has never measured such
a request is taken to be as dear as the dearest that has, since a price of nothing would draw every
request to whoever knows least. Equal ones are chosen by their ids, so that a choice can be made
again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from fastvideo.deployment.card import CostModel, EngineLoad, EngineOffer
from fastvideo.errors import FailedPrecondition, FastVideoError, InvalidField, Unavailable
from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.affinity import session_key, text_keys
from fastvideo.scheduling.cost import CardCosts, price_request, request_phase, request_shape

WARM_SECONDS: Final = 0.5
"""What it is worth that an engine has all of a request cached: as `affinity_seconds_max`."""


class PriceSource(StrEnum):
    """Where a price is from."""

    # Such requests ran there.
    MEASURED = "measured"
    # Requests of the program at other sizes did.
    SCALED = "scaled"
    # None did: as dear as the dearest of the others.
    ASSUMED = "assumed"
    # Nobody knows.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One engine for one request."""

    engine_id: str
    # Why it cannot run the request; empty when it can.
    refusal: str = ""
    # Whether that may pass by itself.
    may_pass: bool = False
    # Predicted device-seconds of the request, and how far such predictions were off, 0 to 1;
    # None where none was compared.
    device_seconds: float = 0.0
    price: PriceSource = PriceSource.UNKNOWN
    relative_error: float | None = None
    # Seconds until its backlog is done.
    wait_seconds: float = 0.0
    # The share of what the request needs that is cached there, 0 to 1, and its worth.
    warm_share: float = 0.0
    warm_seconds: float = 0.0

    @property
    def total_seconds(self) -> float:
        """What the choice goes by."""
        return self.wait_seconds + self.device_seconds - self.warm_seconds

    @property
    def done_seconds(self) -> float:
        """When it would be done: what is cached is worth no more there than all of the work."""
        return self.wait_seconds + max(0.0, self.device_seconds - self.warm_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A choice, with what it was made of."""

    engine_id: str
    # Those that can run the request, the best first, and then the others.
    candidates: tuple[Candidate, ...]

    @property
    def chosen(self) -> Candidate:
        """The engine that was chosen."""
        return self.candidates[0]


def choose(
    spec: RequestSpec,
    offers: Sequence[EngineOffer],
    *,
    capability: str = "",
    warm_seconds: float = WARM_SECONDS,
) -> Route:
    """The engine for a request among those that are offered.

    `capability` is what the request's program needs, such as "image_to_video". Raises
    InvalidField for two engines of one name, Unavailable (NO_ENGINE_READY) when those that could
    run it are not ready now, and FailedPrecondition (NO_ENGINE) when none ever can; both give
    each engine's reason in their attributes.
    """
    ids = [offer.card.engine_id for offer in offers]
    for engine_id in ids:
        if ids.count(engine_id) > 1:
            raise InvalidField("engine_id", engine_id, "one card an engine")
    looked = [_candidate(spec, offer, capability, warm_seconds) for offer in offers]
    able = _assumed([one for one in looked if not one.refusal])
    refused = sorted((one for one in looked if one.refusal), key=lambda one: one.engine_id)
    if not able:
        raise _no_engine(spec, refused)
    ranked = sorted(able, key=lambda one: (one.total_seconds, one.wait_seconds, one.engine_id))
    return Route(engine_id=ranked[0].engine_id, candidates=(*ranked, *refused))


def _candidate(
    spec: RequestSpec, offer: EngineOffer, capability: str, warm_seconds: float
) -> Candidate:
    refusal, may_pass = _refusal(spec, offer, capability)
    if refusal:
        return Candidate(engine_id=offer.card.engine_id, refusal=refusal, may_pass=may_pass)
    costs, load = CardCosts(offer.card.cost_model), offer.load
    seconds = price_request(costs, spec)
    share = _warm_share(spec, load)
    known = costs.known(spec.model_id, request_phase(spec), request_shape(spec))
    return Candidate(
        engine_id=offer.card.engine_id,
        device_seconds=seconds,
        price=_source(measured=known is not None, seconds=seconds),
        relative_error=_error(offer.card.cost_model, spec),
        wait_seconds=load.backlog_seconds / max(1, load.compute_slots),
        warm_share=share,
        warm_seconds=share * warm_seconds,
    )


def _refusal(spec: RequestSpec, offer: EngineOffer, capability: str) -> tuple[str, bool]:
    """Why an engine cannot run a request, and whether that may pass; empty when it can."""
    card = offer.card
    if spec.model_id not in card.model_specs:
        return f"it has no model {spec.model_id}", False
    digest = card.card_digests.get(spec.model_id, "")
    if spec.card_digest and digest not in ("", spec.card_digest):
        return f"its {spec.model_id} has another card, {digest[:12]}", False
    if spec.program_id and spec.program_id not in card.supported_programs:
        return f"it has no program {spec.program_id}", False
    if capability and capability not in card.capabilities.capabilities:
        return f"it cannot do {capability}", False
    pools = [pool for pool in card.role_pools if not pool.models or spec.model_id in pool.models]
    if card.role_pools and not any(pool.replicas for pool in pools):
        return f"no pool of it serves {spec.model_id} now", True
    if spec.model_id not in offer.load.ready_models:
        return f"{spec.model_id} is not ready there", True
    return "", False


def _source(*, measured: bool, seconds: float) -> PriceSource:
    if measured:
        return PriceSource.MEASURED
    return PriceSource.SCALED if seconds > 0 else PriceSource.UNKNOWN


def _error(model: CostModel, spec: RequestSpec) -> float | None:
    wanted = (spec.model_id, request_phase(spec), request_shape(spec))
    for entry in model.entries:
        if (entry.model_id, entry.phase, entry.shape) == wanted and entry.samples:
            return entry.relative_error
    return None


def _warm_share(spec: RequestSpec, load: EngineLoad) -> float:
    keys = [key for key in (*text_keys(spec), session_key(spec)) if key]
    warm = set(load.warm_keys)
    return sum(key in warm for key in keys) / len(keys) if keys else 0.0


def _assumed(able: Iterable[Candidate]) -> list[Candidate]:
    """The candidates, those without a price as dear as the dearest."""
    found = list(able)
    dearest = max((one.device_seconds for one in found), default=0.0)
    return [
        _priced(one, dearest) if one.price is PriceSource.UNKNOWN and dearest > 0 else one
        for one in found
    ]


def _priced(one: Candidate, seconds: float) -> Candidate:
    return Candidate(
        engine_id=one.engine_id,
        device_seconds=seconds,
        price=PriceSource.ASSUMED,
        wait_seconds=one.wait_seconds,
        warm_share=one.warm_share,
        warm_seconds=one.warm_seconds,
    )


def _no_engine(spec: RequestSpec, refused: Sequence[Candidate]) -> FastVideoError:
    reasons: Mapping[str, str] = {one.engine_id: one.refusal for one in refused}
    told = "; ".join(f"{engine_id}: {why}" for engine_id, why in reasons.items())
    message = f"no engine can run {spec.model_id or 'the request'}: {told or 'none is offered'}"
    if any(one.may_pass for one in refused) or not refused:
        return Unavailable(message, reason="NO_ENGINE_READY", subject="engines", attributes=reasons)
    return FailedPrecondition(message, reason="NO_ENGINE", subject="engines", attributes=reasons)
