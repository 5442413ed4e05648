"""Sampling parameters: what was given, checked; what was left out, from the card."""

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.model.specs import ModelSpec, ParameterSpec
from fastvideo.program.specs import ProgramSpec
from fastvideo.requests.parameters import check_parameter
from fastvideo.requests.types import SamplingOverrides, SamplingParams
from fastvideo.scheduling.work import UnitKind

SEED_MAX: Final = 2**32 - 1

_REAL_FIELDS: Final = frozenset({"guidance_scale", "flow_shift"})
# The sampler and what only some samplers read: not numbers that a card gives a range for alone.
_OF_SAMPLER: Final = ("sampler", "noise_level")
_ANY_SEED: Final = ParameterSpec(minimum=0, maximum=SEED_MAX, multiple_of=1)

_SHAPE: Final = frozenset({"width", "height", "num_frames"})
_DENOISING: Final = _SHAPE | {"steps", "guidance_scale", "flow_shift", "seed"}
# What a loop of each kind reads; kinds that are not here read the seed alone.
_READ_BY_UNITS: Final[Mapping[UnitKind, frozenset[str]]] = MappingProxyType(
    {
        # The most tokens of an answer are its steps.
        UnitKind.AR_TOKEN: frozenset({"steps", "seed"}),
        UnitKind.DIFFUSION_STEP: _DENOISING.union(_OF_SAMPLER),
        UnitKind.DIFFUSION_WINDOW: _DENOISING,
        UnitKind.CHUNK_STEP: _DENOISING,
        UnitKind.LOGPROB_BATCH: _DENOISING,
        UnitKind.REWARD_BATCH: _DENOISING,
        UnitKind.VAE_TILE: _SHAPE,
        UnitKind.ARTIFACT_WRITE: frozenset({"fps"}),
        UnitKind.ENCODER_CHUNK: frozenset(),
    }
)
_READ_BY_OTHERS: Final = frozenset({"seed"})


def resolve_sampling(
    given: SamplingOverrides, card: ModelSpec, program: ProgramSpec, random_seed: int
) -> tuple[SamplingParams, tuple[str, ...]]:
    """The parameters that will be used, and the names of those that were left out.

    A seed that is left out is the random one. Raises InvalidField for a value that the card
    does not allow, and for one that the program would not read.
    """
    read = _fields_read(card, program)
    values: dict[str, float] = {}
    defaulted = []
    for name in (field.name for field in fields(SamplingParams) if field.name not in _OF_SAMPLER):
        path = f"sampling.{name}"
        value = getattr(given, name)
        spec = card.sampling.get(name, _ANY_SEED if name == "seed" else None)
        if value is not None:
            if spec is None or name not in read:
                raise _not_taken(path, value, card, program)
            values[name] = check_parameter(path, value, spec, integral=name not in _REAL_FIELDS)
        elif spec is not None:
            values[name] = _default_of(name, spec, random_seed)
            defaulted.append(path)
    for name in _OF_SAMPLER:
        if getattr(given, name) is None:
            defaulted.append(f"sampling.{name}")
        elif name not in read:
            raise _not_taken(f"sampling.{name}", getattr(given, name), card, program)
    sampler = _sampler(given.sampler, card)
    # The values are whole where the field is: `check_parameter` and `_default_of` saw to that.
    params = SamplingParams(
        **values,  # type: ignore[arg-type]
        sampler=sampler,
        noise_level=_noise_level(given.noise_level, sampler, card),
    )
    return params, tuple(defaulted)


def _sampler(given: str | None, card: ModelSpec) -> str:
    """The sampler by name; empty for the card's own. Raises InvalidField for another."""
    if given in (None, "", card.sampler):
        return ""
    if given not in card.samplers:
        offered = ", ".join((card.sampler, *card.samplers))
        raise InvalidField("sampling.sampler", given, offered, reason="SAMPLER_NOT_OFFERED")
    return str(given)


def _noise_level(given: float | None, sampler: str, card: ModelSpec) -> float:
    """The noise that a stochastic sampler adds; 0 for the card's own, which adds none.

    Raises InvalidField for a level that the card does not allow, and for noise without a
    sampler that adds it.
    """
    path, spec = "sampling.noise_level", card.sampling.get("noise_level")
    if sampler and spec is not None:
        if given is None:
            return spec.default_value
        return check_parameter(path, given, spec, integral=False)
    if given is not None and given != 0:
        needs = ", ".join(card.samplers) or f"none that {card.model_id} offers"
        raise InvalidField(
            path, given, f"0, or another sampler: {needs}", reason="PARAMETER_NOT_TAKEN"
        )
    return 0.0


def _not_taken(path: str, value: object, card: ModelSpec, program: ProgramSpec) -> InvalidField:
    return InvalidField(
        path,
        value,
        f"left out: program {program.program_id} of {card.model_id} does not use it",
        reason="PARAMETER_NOT_TAKEN",
    )


def _default_of(name: str, spec: ParameterSpec, random_seed: int) -> float:
    if name == "seed":
        span = int(spec.maximum) - int(spec.minimum) + 1
        return int(spec.minimum) + random_seed % span
    return spec.default_value if name in _REAL_FIELDS else int(spec.default_value)


def _fields_read(card: ModelSpec, program: ProgramSpec) -> frozenset[str]:
    loops = (card.loops[node.loop_id] for node in program.nodes if node.loop_id in card.loops)
    sets = (_READ_BY_UNITS.get(loop.unit_kind, _READ_BY_OTHERS) for loop in loops)
    return frozenset[str]().union(*sets)
