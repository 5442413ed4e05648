"""Static validation of a card: every reference is kept, every loop is priced.

Each check gives its problems by key; `fastvideo.model.card` raises them together.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Final

from fastvideo.model.caching import CacheKey
from fastvideo.model.component_classes import UPSTREAM_CLASSES
from fastvideo.model.rungs import RUNGS
from fastvideo.model.specs import CacheContract, ComponentSpec, CostPrior, LoopSpec, ModelSpec
from fastvideo.scheduling.work import UnitKind

CAPABILITIES: Final = frozenset(
    {
        "text_to_video",
        "image_to_video",
        "video_to_video",
        "text_to_image",
        "image_to_image",
        "audio_to_video",
        "video_to_audio",
        "reasoning_text",
        "action_conditioning",
        "multimodal_understanding",
        "latent_scoring",
        "reward_scoring",
        "policy_rollout",
        "logprob_recompute",
        "vae_encode",
        "vae_decode",
        "streaming_video_continuation",
    }
)
"""What a model can be declared to do."""

SAMPLING_FIELDS: Final = frozenset(
    {
        "width",
        "height",
        "num_frames",
        "fps",
        "steps",
        "guidance_scale",
        "flow_shift",
        "seed",
    }
)
"""The sampling fields whose range every card gives."""

STOCHASTIC_FIELDS: Final = frozenset({"noise_level"})
"""Those that a card gives when it offers a sampler that adds noise."""

SAMPLERS: Final = frozenset({"flow_sde"})
"""The samplers that a card may offer beside its own; each adds noise."""

DTYPES: Final = ("float32", "bfloat16", "float16")
"""The dtypes that parameters may be run in."""

PLACEMENTS: Final = ("device", "cpu")
"""Where a component's parameters may lie: on the worker's device, which is the default, or not."""

Problem = tuple[str, str]


def card_problems(card: ModelSpec) -> dict[str, str]:
    """What is wrong with a card, by key; empty when it is sound."""
    checks: tuple[Callable[[ModelSpec], Iterator[Problem]], ...] = (
        _identity,
        _components,
        _loops,
        _recipe,
        _caches,
        _processors,
        _sampling,
        _parity,
        _parallelism,
    )
    return {key: fault for check in checks for key, fault in check(card)}


def _identity(card: ModelSpec) -> Iterator[Problem]:
    for name in ("model_id", "family", "checkpoint", "sampler"):
        if not getattr(card, name):
            yield name, "is empty"
    for capability in card.capabilities.capabilities:
        if capability not in CAPABILITIES:
            yield "capabilities", f"{capability!r} is none of {', '.join(sorted(CAPABILITIES))}"


def _components(card: ModelSpec) -> Iterator[Problem]:
    for name, component in card.components.items():
        key = f"components.{name}"
        if component.component_id != name:
            yield f"{key}.component_id", f"is {component.component_id!r}; its key says {name!r}"
        allowed = UPSTREAM_CLASSES[component.kind]
        if component.load_id not in allowed:
            yield f"{key}.load_id", f"is {component.load_id!r}; allowed: {', '.join(allowed)}"
        yield from _placement(key, component)
        for contract in component.cache_contracts:
            if contract not in card.caches:
                yield f"{key}.cache_contracts", f"{contract!r} is not declared in caches"
        for field, literal in component.config_schema.items():
            if not _is_json(literal):
                yield f"{key}.config_schema.{field}", f"{literal!r} is no JSON literal"
        for test in component.parity_tests:
            if test.rung not in RUNGS:
                yield f"{key}.parity_tests", f"{test.rung!r} is none of {', '.join(RUNGS)}"


def _placement(key: str, component: ComponentSpec) -> Iterator[Problem]:
    policy, placement = component.precision_policy, component.placement_policy
    if placement not in ("", *PLACEMENTS):
        yield f"{key}.placement_policy", f"is {placement!r}; allowed: {', '.join(PLACEMENTS)}"
    if policy.param_dtype not in ("", *DTYPES):
        allowed = ", ".join(DTYPES)
        yield (
            f"{key}.precision_policy.param_dtype",
            f"is {policy.param_dtype!r}; allowed: {allowed}",
        )


def _loops(card: ModelSpec) -> Iterator[Problem]:
    if not card.loops:
        yield "loops", "is empty"
    for name, loop in card.loops.items():
        key = f"loops.{name}"
        if loop.loop_id != name:
            yield f"{key}.loop_id", f"is {loop.loop_id!r}; its key says {name!r}"
        if not loop.state_schema:
            yield f"{key}.state_schema", "is empty"
        for component in loop.components:
            if component not in card.components:
                yield f"{key}.components", f"{component!r} is not declared in components"
        for contract in loop.cache_contracts:
            if contract not in card.caches:
                yield f"{key}.cache_contracts", f"{contract!r} is not declared in caches"
        yield from _policy(key, loop)
        yield from _cost(key, loop)
        yield from _phases(key, loop)


def _policy(key: str, loop: LoopSpec) -> Iterator[Problem]:
    policy = loop.step_policy
    if not policy.count_from:
        yield f"{key}.step_policy.count_from", "is empty"
    if policy.max_batch < 1:
        yield f"{key}.step_policy.max_batch", f"is {policy.max_batch}; allowed: 1 or more"
    if policy.max_batch > 1 and not policy.batchable:
        yield f"{key}.step_policy.max_batch", "is above 1 on a loop that is not batchable"
    if loop.preemption_policy not in ("every_step", "none"):
        yield f"{key}.preemption_policy", f"is {loop.preemption_policy!r}"
    if loop.unit_kind is UnitKind.DIFFUSION_STEP and not loop.guidance_policy:
        yield f"{key}.guidance_policy", 'is empty; write "none" for a loop without guidance'
    if not loop.valid_parallel_plans:
        yield f"{key}.valid_parallel_plans", "is empty"


def _cost(key: str, loop: LoopSpec) -> Iterator[Problem]:
    yield from _price(f"{key}.cost", loop.cost)


def _phases(key: str, loop: LoopSpec) -> Iterator[Problem]:
    kinds, phases = {loop.unit_kind}, {loop.cost.phase}
    for index, phase in enumerate(loop.phases):
        at = f"{key}.phases.{index}"
        if phase.unit_kind in kinds:
            yield f"{at}.unit_kind", f"{phase.unit_kind.value!r} is there twice"
        if phase.cost.phase in phases:
            yield f"{at}.cost.phase", f"{phase.cost.phase!r} is another kind's"
        kinds.add(phase.unit_kind)
        phases.add(phase.cost.phase)
        yield from _price(f"{at}.cost", phase.cost)


def _price(key: str, cost: CostPrior) -> Iterator[Problem]:
    if not cost.phase:
        yield f"{key}.phase", "is empty"
    if min(cost.base_seconds, cost.seconds_per_token) < 0:
        yield key, "is negative"
    if cost.base_seconds + cost.seconds_per_token <= 0:
        yield key, "is zero; every loop needs a price"


def _recipe(card: ModelSpec) -> Iterator[Problem]:
    if card.recipe is None:
        yield "recipe", "is missing; weights must say which loop they were trained for"
    elif card.recipe.assumes_loop not in card.loops:
        yield "recipe.assumes_loop", f"{card.recipe.assumes_loop!r} is not declared in loops"


def _caches(card: ModelSpec) -> Iterator[Problem]:
    known = {field.name for field in fields(CacheKey)}
    for name, contract in card.caches.items():
        key = f"caches.{name}"
        if contract.contract_id != name:
            yield f"{key}.contract_id", f"is {contract.contract_id!r}; its key says {name!r}"
        yield from _cache_users(key, contract, card)
        for missing in sorted(known - set(contract.key_fields)):
            yield f"{key}.key_fields", f"lacks {missing!r}; a key holds every field"
        for extra in sorted(set(contract.key_fields) - known):
            yield f"{key}.key_fields", f"{extra!r} is no field of a cache key"
        for field in ("memory_pool", "eviction_policy", "invalidation_policy", "parity", "version"):
            if not getattr(contract, field):
                yield f"{key}.{field}", "is empty"


def _cache_users(key: str, contract: CacheContract, card: ModelSpec) -> Iterator[Problem]:
    for role, users in (("producers", contract.producers), ("consumers", contract.consumers)):
        if not users:
            yield f"{key}.{role}", "is empty"
        for user in users:
            loop = card.loops.get(user)
            if loop is None:
                yield f"{key}.{role}", f"{user!r} is not declared in loops"
            elif contract.contract_id not in loop.cache_contracts:
                yield f"{key}.{role}", f"loop {user!r} does not declare {contract.contract_id!r}"


def _processors(card: ModelSpec) -> Iterator[Problem]:
    for name, processor in card.processors.items():
        key = f"processors.{name}"
        if processor.component_id not in card.components:
            yield f"{key}.component_id", f"{processor.component_id!r} is not declared in components"
        if processor.max_tokens < 1 or processor.max_characters < 1:
            yield key, "needs max_tokens and max_characters of 1 or more"


def _sampling(card: ModelSpec) -> Iterator[Problem]:
    for sampler in card.samplers:
        if sampler not in SAMPLERS:
            yield "samplers", f"{sampler!r} is none of {', '.join(sorted(SAMPLERS))}"
    wanted = SAMPLING_FIELDS | (STOCHASTIC_FIELDS if card.samplers else frozenset())
    for missing in sorted(wanted - set(card.sampling)):
        yield f"sampling.{missing}", "is missing"
    for name, parameter in card.sampling.items():
        key = f"sampling.{name}"
        if name not in wanted:
            yield key, f"is none of {', '.join(sorted(wanted))}"
        if not parameter.minimum <= parameter.default_value <= parameter.maximum:
            yield f"{key}.default_value", "is outside minimum and maximum"
        step = parameter.multiple_of
        if step and (parameter.default_value - parameter.offset) % step:
            yield f"{key}.default_value", f"is not {parameter.offset:g} + k * {step:g}"


def _parity(card: ModelSpec) -> Iterator[Problem]:
    if not card.parity.reference:
        yield "parity.reference", "is empty"
    for test in card.parity.tests:
        if test.rung not in RUNGS:
            yield "parity.tests", f"{test.rung!r} is none of {', '.join(RUNGS)}"
        if test.max_abs_difference < 0:
            yield "parity.tests", f"{test.name!r} allows a negative difference"


def _parallelism(card: ModelSpec) -> Iterator[Problem]:
    declared: Mapping[str, object] = dict.fromkeys(card.parallelism.axes)
    for plan in card.parallelism.valid_plans:
        for axis, degree in plan.axes.items():
            if axis not in declared:
                yield "parallelism.valid_plans", f"axis {axis!r} is not declared in axes"
            if degree < 1:
                yield "parallelism.valid_plans", f"axis {axis!r} has degree {degree}"


def _is_json(literal: str) -> bool:
    try:
        json.loads(literal)
    except ValueError:
        return False
    return True
