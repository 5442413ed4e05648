"""What the server says of its models, from its messages."""

from fastvideo import wire
from fastvideo.api.common.v1 import program_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.client.types import ModelDescription, ModelSummary, ServableSummary
from fastvideo.model.specs import ModelSpec
from fastvideo.program.specs import ProgramSpec


def model_summary(message: gateway_pb2.ModelSummary) -> ModelSummary:
    """A model, with what can be asked of it."""
    return ModelSummary(
        model_id=message.model_id,
        family=message.family,
        description=message.description,
        capabilities=tuple(message.capabilities),
        ready=message.ready,
        unavailable_reason=message.unavailable_reason,
        servables=tuple(map(_servable, message.servables)),
    )


def model_description(message: gateway_pb2.DescribeModelResponse) -> ModelDescription:
    """A model's card and its programs."""
    return ModelDescription(
        spec=wire.from_proto(ModelSpec, message.spec),
        card_digest=message.card_digest,
        ready=message.ready,
        unavailable_reason=message.unavailable_reason,
        programs=tuple(wire.from_proto(ProgramSpec, program) for program in message.programs),
    )


def _servable(message: gateway_pb2.ServableSummary) -> ServableSummary:
    is_workflow = message.kind == program_pb2.PROGRAM_KIND_WORKFLOW
    return ServableSummary(
        servable_id=message.servable_id,
        program_id=message.program_id,
        kind="workflow" if is_workflow else "program",
        capability=message.capability,
        is_default=message.is_default,
    )
