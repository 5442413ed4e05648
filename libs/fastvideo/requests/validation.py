"""From what a caller asked to what will be run: every field honoured, or refused by name.

The gateway and the in-process engine resolve with this one function, so that a request means
the same served and offline. Whatever is left out takes the card's default and is listed in
`RequestSpec.defaulted`.

Invariant: pure. The id, the moment and the random seed come in with the call.
"""

from datetime import datetime
from typing import Final

from fastvideo.deployment.catalog import CatalogEntry
from fastvideo.errors import FailedPrecondition, InvalidField
from fastvideo.program.specs import ProgramSpec
from fastvideo.requests.draft import RequestDraft
from fastvideo.requests.inputs import check_negative_prompt, resolve_inputs
from fastvideo.requests.outputs import resolve_outputs
from fastvideo.requests.sampling import resolve_sampling
from fastvideo.requests.types import RequestKind, RequestSpec

PRIORITY_MIN: Final = -100
PRIORITY_MAX: Final = 100
_GUIDED: Final = frozenset({RequestKind.GENERATION, RequestKind.TRAINING_SAMPLE})


def resolve_request(
    draft: RequestDraft,
    entry: CatalogEntry,
    *,
    request_id: str,
    tenant_id: str,
    random_seed: int,
    now: datetime,
) -> RequestSpec:
    """The request as it will be run.

    `random_seed`, from 0 to `SEED_MAX`, is used when the draft names none. Raises
    FailedPrecondition when the model cannot be served here and InvalidField for the first
    field that is wrong, naming its path, its value and what is allowed.
    """
    card = entry.card
    if entry.unavailable_reason:
        raise FailedPrecondition(
            f"model {card.model_id} cannot be served here: {entry.unavailable_reason}",
            reason="MODEL_UNAVAILABLE",
            subject=card.model_id,
        )
    kind = RequestKind.GENERATION if draft.kind is None else draft.kind
    program = _program_of(entry, kind, draft.program_id)
    inputs, inputs_left_out = resolve_inputs(draft.inputs, card, program)
    sampling, sampling_left_out = resolve_sampling(draft.sampling, card, program, random_seed)
    if kind in _GUIDED:
        check_negative_prompt(inputs, sampling)
    outputs, outputs_left_out = resolve_outputs(draft.outputs, program, card)
    _check_urgency(draft, now)
    defaulted = (
        *(("kind",) if draft.kind is None else ()),
        *(() if draft.program_id else ("program_id",)),
        *inputs_left_out,
        *sampling_left_out,
        *outputs_left_out,
    )
    return RequestSpec(
        request_id=request_id,
        kind=kind,
        model_id=card.model_id,
        card_digest=entry.card_digest,
        program_id=program.program_id,
        inputs=inputs,
        sampling=sampling,
        outputs=outputs,
        tenant_id=tenant_id,
        session_id=draft.session_id,
        priority=draft.priority,
        deadline=draft.deadline,
        defaulted=defaulted,
        required_weights_version=draft.required_weights_version,
    )


def _program_of(entry: CatalogEntry, kind: RequestKind, program_id: str) -> ProgramSpec:
    """The program that serves the kind, which the model must be able to run."""
    program = entry.program_for(kind, program_id)
    able = entry.card.capabilities.capabilities
    if program.capability not in able:
        raise InvalidField(
            "program_id",
            program.program_id,
            f"a program for what {entry.card.model_id} can do: {', '.join(able) or 'nothing'}",
            reason="CAPABILITY_MISSING",
        )
    return program


def _check_urgency(draft: RequestDraft, now: datetime) -> None:
    if not PRIORITY_MIN <= draft.priority <= PRIORITY_MAX:
        raise InvalidField("priority", draft.priority, f"{PRIORITY_MIN} to {PRIORITY_MAX}")
    if draft.deadline is None:
        return
    if draft.deadline.tzinfo is None:
        raise InvalidField("deadline", draft.deadline.isoformat(), "a time with its time zone")
    if draft.deadline <= now:
        raise InvalidField(
            "deadline",
            draft.deadline.isoformat(),
            f"a time after {now.isoformat()}",
            reason="DEADLINE_PAST",
        )
