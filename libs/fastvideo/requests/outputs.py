"""What a request wants handed out against what its program can give."""

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.model.specs import ModelSpec
from fastvideo.program.specs import NodeKind, ProgramSpec
from fastvideo.requests.types import Capture, OutputSpec

OUTPUTS: Final = tuple(field.name for field in fields(OutputSpec) if field.type in (bool, "bool"))

# What an artifact node makes of the values that flow into it.
_MADE_FROM: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {"frames": frozenset({"video", "sheet", "preview", "image"}), "latents": frozenset({"latents"})}
)


def offered_outputs(program: ProgramSpec) -> tuple[str, ...]:
    """The artifacts of `OutputSpec` that the program's artifact nodes can fill.

    A program whose artifacts nobody chooses, such as scores, offers none.
    """
    values = {
        value for node in program.nodes if node.kind is NodeKind.ARTIFACT for value in node.inputs
    }
    made = frozenset[str]().union(*(_MADE_FROM.get(value, frozenset()) for value in values))
    return tuple(name for name in OUTPUTS if name in made)


def resolve_outputs(
    wanted: OutputSpec | None, program: ProgramSpec, card: ModelSpec
) -> tuple[OutputSpec, tuple[str, ...]]:
    """What will be handed out, and "outputs" when it was left out.

    Left out, a program gives its video, or else its latents. Raises InvalidField for an output
    that the program cannot give, and for a capture of what none of its loops records.
    """
    offered = offered_outputs(program)
    chosen = [name for name in OUTPUTS if wanted is not None and getattr(wanted, name)]
    defaulted: tuple[str, ...] = ()
    if not chosen:
        chosen, defaulted = list(offered[:1]), ("outputs",)
    for name in chosen:
        if name not in offered:
            raise InvalidField(
                f"outputs.{name}",
                True,
                f"what program {program.program_id} gives: {', '.join(offered) or 'none'}",
                reason="OUTPUT_NOT_OFFERED",
            )
    recorded = wanted or OutputSpec()
    if recorded.capture is Capture.BEHAVIOR and not _records_behavior(program, card):
        raise InvalidField(
            "outputs.capture",
            recorded.capture.value,
            f"left out: no loop of program {program.program_id} of {card.model_id} records it",
            reason="CAPTURE_NOT_OFFERED",
        )
    outputs = OutputSpec(
        **dict.fromkeys(chosen, True),
        capture=recorded.capture,
        trace=recorded.trace,
        ttl_s=recorded.ttl_s,
    )
    return outputs, defaulted


def _records_behavior(program: ProgramSpec, card: ModelSpec) -> bool:
    loops = (card.loops.get(node.loop_id) for node in program.nodes)
    return any(loop is not None and loop.behavior_record_schema for loop in loops)
