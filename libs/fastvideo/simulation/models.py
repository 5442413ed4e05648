"""Simulated models: programs, what the units of a loop are for a request, and what they cost."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from fastvideo.deployment.catalog import Catalog
from fastvideo.errors import FailedPrecondition, NotFound
from fastvideo.model.documents import InvalidDocument
from fastvideo.model.specs import CostPrior, LoopSpec
from fastvideo.program.specs import (
    EdgeKind,
    NodeKind,
    ProgramEdge,
    ProgramKind,
    ProgramNode,
    ProgramSpec,
)
from fastvideo.requests.types import RequestKind, RequestSpec
from fastvideo.scheduling.request_scheduler import program_graph
from fastvideo.scheduling.work import (
    CachePlan,
    LoopRef,
    OutputSink,
    PlacementHint,
    ResourceRequest,
    StepRange,
    UnitKind,
    WorkPlan,
    WorkUnit,
)
from fastvideo.simulation.recorded import RecordedRequest
from fastvideo.simulation.trace import LoopTrace, ModelTrace, NodeTrace

PROGRAM: Final = "main"
"""The id of a program that is written in a trace."""

_COUNTS: Final = frozenset({"steps", "texts", "latent_frames", "outputs", "sigmas"})
_SIGMAS: Final = 4
# Wan's geometry: pixels a latent cell, latent cells a token on a side, frames a latent frame.
_PIXELS: Final = 8
_PATCH: Final = 2
_FRAMES: Final = 4


@dataclass(frozen=True, slots=True)
class Facts:
    """What two units must have in common to share a forward, as the truth has it."""

    model_instance_id: str
    loop_id: str
    kind: UnitKind
    shape: str
    branches: int


@dataclass(frozen=True, slots=True)
class Run:
    """One loop of one request: its units and their price."""

    loop_id: str
    kind: UnitKind
    units: int
    shape: str
    # The shape under which its cost is known, which has the branches in it.
    cost_shape: str
    branches: int
    base_s: float
    # Seconds that one unit adds to its forward.
    unit_s: float
    max_batch: int
    at_once: bool
    boundary: bool
    certain: bool
    resources: ResourceRequest
    keeps_blocks: bool
    state_bytes: int
    # The nodes whose outputs it begins with.
    sources: tuple[str, ...]
    facts: dict[str, Facts] = field(default_factory=dict)

    def facts_on(self, instance: str) -> Facts:
        """The truth about its units on a model instance."""
        known = self.facts.get(instance)
        if known is None:
            known = Facts(instance, self.loop_id, self.kind, self.shape, self.branches)
            self.facts[instance] = known
        return known


class SimulatedModels:
    """The models of a trace: a `ModelCatalog` for the core, and units for the workers."""

    def __init__(
        self, models: Mapping[str, ModelTrace], source: str, catalog: Catalog | None = None
    ) -> None:
        """Cards are those of the catalog, or else of the one that is installed."""
        if catalog is None and any(model.card for model in models.values()):
            catalog = Catalog.load()
        self._models = models
        self._programs: dict[str, dict[str, ProgramSpec]] = {}
        self._loops: dict[str, dict[str, LoopTrace]] = {}
        self._priors: dict[tuple[str, str], CostPrior] = {}
        self._channels: dict[str, str] = {}
        self._runs: dict[tuple[object, ...], Run] = {}
        for model_id, model in models.items():
            key = f"models.{model_id}"
            if model.card:
                assert catalog is not None
                self._take_card(model_id, model, catalog, source)
            elif model.program:
                self._programs[model_id] = {PROGRAM: own_program(model.program)}
                self._loops[model_id] = dict(model.loops)
            else:
                raise InvalidDocument(source, {key: "names neither a card nor a program"})
            self._check(model_id, f"{source}", key)

    # -- what the core asks --------------------------------------------------------------

    def program(self, model_id: str, program_id: str) -> ProgramSpec:
        """A model's program. NotFound when there is none of that name."""
        found = self._programs.get(model_id, {}).get(program_id)
        if found is None:
            raise NotFound(f"model {model_id} has no program {program_id!r}", subject=program_id)
        return found

    def cost_prior(self, model_id: str, phase: str) -> CostPrior | None:
        """The card's first guess at a phase's cost; None for models without a card."""
        return self._priors.get((model_id, phase))

    # -- what the world asks -------------------------------------------------------------

    def default_program(self, model_id: str) -> str:
        """The program of a request that names none."""
        programs = self._programs[model_id].values()
        return next(
            program.program_id
            for program in programs
            if program.is_default and program.request_kind is RequestKind.GENERATION
        )

    def programs(self, model_id: str) -> tuple[str, ...]:
        """The ids of a model's programs."""
        return tuple(self._programs[model_id])

    def played(
        self, model_id: str, lines: Iterable[RecordedRequest]
    ) -> tuple[RecordedRequest, ...]:
        """The lines of a recording that are of a model, by its name or its card, or of none."""
        names = ("", model_id, self._models[model_id].card)
        return tuple(line for line in lines if line.model_id in names)

    def prepare_s(self, model_id: str) -> float:
        """Seconds that a worker needs to make a loop."""
        return self._models[model_id].prepare_s

    def nodes(self, spec: RequestSpec) -> tuple[ProgramNode, ...]:
        """The nodes of a request's program."""
        return self._programs[spec.model_id][spec.program_id].nodes

    def ends(self, spec: RequestSpec) -> tuple[str, ...]:
        """The nodes of a request's program that nothing stands on."""
        program = self._programs[spec.model_id][spec.program_id]
        inner = {edge.source_node for edge in program.edges}
        return tuple(node.node_id for node in program.nodes if node.node_id not in inner)

    def run(self, spec: RequestSpec, node_id: str) -> Run:
        """What a node of a request is."""
        sampling = spec.sampling
        key = (
            spec.model_id,
            spec.program_id,
            node_id,
            sampling.width,
            sampling.height,
            sampling.num_frames,
            sampling.steps,
            sampling.guidance_scale > 1,
        )
        known = self._runs.get(key)
        if known is None:
            known = self._runs[key] = self._make(spec, node_id)
        return known

    def _make(self, spec: RequestSpec, node_id: str) -> Run:
        program = self._programs[spec.model_id][spec.program_id]
        node = next(node for node in program.nodes if node.node_id == node_id)
        loop = self._loops[spec.model_id][node.loop_id]
        branches = 2 if loop.guided and spec.sampling.guidance_scale > 1 else 1
        shape, tokens = _geometry(loop, spec, self._channels.get(spec.model_id, ""))
        compute = loop.kind is not UnitKind.ARTIFACT_WRITE
        sources = {e.source_node: None for e in program.edges if e.target_node == node_id}
        return Run(
            loop_id=node.loop_id,
            kind=loop.kind,
            units=_count(loop, spec),
            shape=shape,
            cost_shape=f"{shape}/{branches}" if loop.guided else shape,
            branches=branches,
            base_s=loop.base_s or 0.0,
            unit_s=(loop.token_s or 0.0) * (loop.tokens or tokens) * branches,
            max_batch=loop.max_batch,
            at_once=loop.at_once,
            boundary=loop.cancel_boundary,
            certain=loop.certain,
            resources=ResourceRequest(
                compute=compute,
                memory_bytes={tag: size * branches for tag, size in loop.memory_bytes.items()},
                cache_blocks=loop.cache_blocks,
                staging_bytes=loop.staging_bytes,
                stream_slots=loop.stream_slots,
            ),
            keeps_blocks=loop.keeps_blocks,
            state_bytes=loop.state_bytes,
            sources=tuple(sources),
        )

    def _take_card(self, model_id: str, model: ModelTrace, catalog: Catalog, source: str) -> None:
        key = f"models.{model_id}.card"
        if model.program:
            fault = "a model with a card has the card's programs"
            raise InvalidDocument(source, {f"models.{model_id}.program": fault})
        try:
            entry = catalog.get(model.card)
        except NotFound as error:
            raise InvalidDocument(source, {key: error.message}) from error
        self._programs[model_id] = dict(entry.programs)
        transformer = entry.card.components.get("transformer")
        if transformer is not None:
            self._channels[model_id] = transformer.config_schema.get("in_channels", "")
        loops: dict[str, LoopTrace] = {}
        for loop_id, spec in entry.card.loops.items():
            self._priors[(model_id, spec.cost.phase)] = spec.cost
            loops[loop_id] = _card_loop(spec, model.loops.get(loop_id))
        self._loops[model_id] = {**model.loops, **loops}

    def _check(self, model_id: str, source: str, key: str) -> None:
        problems: dict[str, str] = {}
        loops = self._loops[model_id]
        for program in self._programs[model_id].values():
            try:
                program_graph(program)
            except FailedPrecondition as error:
                problems[f"{key}.program"] = error.message
            for node in program.nodes:
                if node.loop_id not in loops:
                    place = f"{key}.loops.{node.loop_id}"
                    problems[place] = f"node {node.node_id} needs it and it is not there"
        for loop_id, loop in loops.items():
            place = f"{key}.loops.{loop_id}"
            if isinstance(loop.units, str) and loop.units not in _COUNTS:
                problems[f"{place}.units"] = f"{loop.units!r} is none of {sorted(_COUNTS)}"
            if loop.base_s is None and loop.token_s is None:
                problems[f"{place}.base_s"] = "a loop without a card needs base_s or token_s"
            if loop.max_batch < 1:
                problems[f"{place}.max_batch"] = f"is {loop.max_batch}; at least 1"
        if problems:
            raise InvalidDocument(source, problems)


def plan(
    spec: RequestSpec, run: Run, ref: LoopRef, instance: str, position: int, *, known: int = 0
) -> WorkPlan:
    """What a loop plans when `position` of its units are done.

    `known` is how many units a loop that offers all at once has offered before.
    """
    last = run.units if run.at_once else min(position + 1, run.units)
    first = max(position, known) if run.at_once else position
    units = tuple(make_unit(spec, run, ref, instance, index) for index in range(first, last))
    return WorkPlan(loop=ref, state_version=position, units=units)


def make_unit(spec: RequestSpec, run: Run, ref: LoopRef, instance: str, index: int) -> WorkUnit:
    """One unit of a loop."""
    facts = run.facts_on(instance)
    return WorkUnit(
        unit_id=f"{ref.request_id}/{ref.node_id}/{ref.attempt}/{index}",
        loop=ref,
        session_id=spec.session_id,
        program_id=spec.program_id,
        loop_id=run.loop_id,
        model_instance_id=instance,
        kind=run.kind,
        step_range=StepRange(start=index, stop=index + 1, total=run.units),
        batch_key=f"{facts.loop_id}|{facts.shape}|branches={facts.branches}",
        max_batch=run.max_batch,
        cost_phase=run.loop_id,
        cost_shape=run.cost_shape,
        resources=_resources(run, index),
        cache_plan=_NO_CACHE,
        placement_hint=_STICKY,
        output_sinks=_VALUE,
        cancel_boundary=run.boundary or index == 0,
        unconditional_next=0 if run.at_once or not run.certain else run.units - index - 1,
    )


def _resources(run: Run, index: int) -> ResourceRequest:
    if not run.keeps_blocks:
        return run.resources
    blocks = run.resources.cache_blocks * (index + 1)
    return replace(run.resources, cache_blocks=blocks, cache_blocks_kept=True)


_NO_CACHE: Final = CachePlan()
_STICKY: Final = PlacementHint(sticky=True)
_VALUE: Final = (OutputSink(kind="value", name="out"),)


def own_program(nodes: Mapping[str, NodeTrace]) -> ProgramSpec:
    """The program that a trace writes down."""
    edges = tuple(
        ProgramEdge(kind=EdgeKind.TENSOR, source_node=source, target_node=name, value=source)
        for name, node in nodes.items()
        for source in node.after
    )
    return ProgramSpec(
        program_id=PROGRAM,
        kind=ProgramKind.INLINE,
        request_kind=RequestKind.GENERATION,
        nodes=tuple(
            ProgramNode(
                node_id=name,
                kind=NodeKind.MODEL_LOOP,
                loop_id=node.loop,
                role=node.role,
                progress_weight=node.weight,
            )
            for name, node in nodes.items()
        ),
        edges=edges,
        is_default=True,
    )


def _card_loop(spec: LoopSpec, given: LoopTrace | None) -> LoopTrace:
    """A card's loop; of what the trace says beside it, prices and memory count."""
    policy = spec.step_policy
    base_s, token_s = spec.cost.base_seconds, spec.cost.seconds_per_token
    memory: Mapping[str, int] = {}
    if given is not None:
        base_s = base_s if given.base_s is None else given.base_s
        token_s = token_s if given.token_s is None else given.token_s
        memory = given.memory_bytes
    return LoopTrace(
        kind=spec.unit_kind,
        units=policy.count_from if policy.count_from in _COUNTS else 1,
        base_s=base_s,
        token_s=token_s,
        max_batch=policy.max_batch if policy.batchable else 1,
        guided=spec.guidance_policy == "classifier_free",
        cancel_boundary=spec.preemption_policy == "every_step",
        memory_bytes=memory,
        cache_blocks=given.cache_blocks if given is not None else 0,
        staging_bytes=given.staging_bytes if given is not None else 0,
        state_bytes=given.state_bytes if given is not None else LoopTrace().state_bytes,
    )


def _count(loop: LoopTrace, spec: RequestSpec) -> int:
    match loop.units:
        case int():
            return loop.units
        case "steps":
            return spec.sampling.steps
        case "texts":
            return 2 if spec.sampling.guidance_scale > 1 else 1
        case "latent_frames":
            return _latent_frames(spec)
        case "sigmas":
            return _SIGMAS
        case _:
            return 1


def _geometry(loop: LoopTrace, spec: RequestSpec, channels: str) -> tuple[str, int]:
    """The shape under which a unit is known, and its tokens for one branch."""
    sampling = spec.sampling
    height, width = max(1, sampling.height // _PIXELS), max(1, sampling.width // _PIXELS)
    front = f"{channels}x" if channels else ""
    match loop.units:
        case "steps" | "sigmas":
            frames = _latent_frames(spec)
            tokens = frames * -(-height // _PATCH) * -(-width // _PATCH)
            return f"{front}{frames}x{height}x{width}", tokens
        case "latent_frames":
            return f"{front}1x{height}x{width}", height * width
        case _:
            return f"1x{loop.tokens or 1}", 1


def _latent_frames(spec: RequestSpec) -> int:
    return (max(1, spec.sampling.num_frames) - 1) // _FRAMES + 1
