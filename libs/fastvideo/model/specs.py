"""A model family as data: components, loops, caches, checkpoint, parity.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fastvideo.model.caching import CacheClass
from fastvideo.model.tensors import TensorSchema
from fastvideo.scheduling.work import UnitKind


class ComponentKind(StrEnum):
    """What a component is."""

    DIT = "dit"
    VAE = "vae"
    TEXT_ENCODER = "text_encoder"
    VISION_ENCODER = "vision_encoder"
    AUDIO_ENCODER = "audio_encoder"
    AUDIO_TOKENIZER = "audio_tokenizer"
    REASONER = "reasoner"
    SCHEDULER = "scheduler"
    TOKENIZER = "tokenizer"
    PROCESSOR = "processor"
    CONDITIONER = "conditioner"
    ADAPTER = "adapter"
    REWARD_HEAD = "reward_head"
    SAFETY_HEAD = "safety_head"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionPolicy:
    """The dtypes of a component."""

    # dtype of the resident parameters.
    param_dtype: str = ""
    # dtype that the forward runs in.
    compute_dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityTestSpec:
    """A comparison with the upstream reference, and the difference that it allows."""

    name: str = ""
    # "C0" to "C4".
    rung: str = ""
    max_abs_difference: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    """A named, typed, loadable part of a model."""

    component_id: str = ""
    kind: ComponentKind
    # The upstream class, such as "diffusers.WanTransformer3DModel".
    load_id: str = ""
    # Folder in the checkpoint.
    subfolder: str = ""
    # Configuration values that the checkpoint must have, as JSON literals.
    config_schema: Mapping[str, str] = field(default_factory=dict)
    input_schema: tuple[TensorSchema, ...] = ()
    output_schema: tuple[TensorSchema, ...] = ()
    precision_policy: PrecisionPolicy
    placement_policy: str = ""
    # Parallelism axes that may be larger than one.
    parallelism_axes: tuple[str, ...] = ()
    cache_contracts: tuple[str, ...] = ()
    parity_tests: tuple[ParityTestSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheContract:
    """What a cache of a model may hold and who may use it."""

    contract_id: str = ""
    cache_class: CacheClass
    producers: tuple[str, ...] = ()
    consumers: tuple[str, ...] = ()
    key_fields: tuple[str, ...] = ()
    value_schema: tuple[TensorSchema, ...] = ()
    memory_pool: str = ""
    # "lru" or "request_end".
    eviction_policy: str = ""
    transfer_policy: str = ""
    invalidation_policy: str = ""
    # "exact" or the rung that reuse keeps.
    parity: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostPrior:
    """A first guess at a phase's cost; measurements replace it."""

    phase: str = ""
    base_seconds: float = 0.0
    seconds_per_token: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPhase:
    """A kind of unit that a loop plans beside its main one, and its price."""

    unit_kind: UnitKind
    cost: CostPrior


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPolicy:
    """How many units a loop has, and which may share a forward."""

    # What fixes the number of units: "steps", "texts", "latent_frames" or "outputs".
    count_from: str = ""
    # Several requests' units may share a forward.
    batchable: bool = False
    max_batch: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSpec:
    """A named model behaviour with stable state and scheduler boundaries."""

    loop_id: str = ""
    # Such as "flow_matching_denoise".
    kind: str = ""
    unit_kind: UnitKind
    components: tuple[str, ...] = ()
    input_schema: tuple[TensorSchema, ...] = ()
    output_schema: tuple[TensorSchema, ...] = ()
    # Name and version of the state's schema, such as "denoise.v1".
    state_schema: str = ""
    behavior_record_schema: str | None = None
    step_policy: StepPolicy
    # "every_step" or "none".
    preemption_policy: str = ""
    cache_contracts: tuple[str, ...] = ()
    # Guidance policy, such as "classifier_free"; empty when there is none.
    guidance_policy: str = ""
    graph_capture_policy: str = ""
    valid_parallel_plans: tuple[str, ...] = ()
    cost: CostPrior
    # Kinds of units beside unit_kind, such as the prefill of a loop of tokens.
    phases: tuple[UnitPhase, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """One sampling field's default and what is allowed."""

    default_value: float = 0.0
    minimum: float = 0.0
    maximum: float = 0.0
    # Allowed values are offset + k * multiple_of; 0 means any.
    multiple_of: float = 0.0
    offset: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelVariantSpec:
    """A named variant of a model."""

    variant_id: str = ""
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapabilityMatrix:
    """What a model can do."""

    # Names of S1's list, such as "text_to_video".
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorSpec:
    """A tokenizer or processor, and the input that it takes."""

    processor_id: str = ""
    component_id: str = ""
    # Tokens; longer prompts are refused.
    max_tokens: int = 0
    max_characters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFile:
    """One file of a checkpoint."""

    path: str = ""
    component_id: str = ""
    size_bytes: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """One tensor of a checkpoint."""

    key: str = ""
    shape: tuple[int, ...] = ()
    dtype: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorTable:
    """The tensors of one component."""

    tensors: tuple[TensorEntry, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointManifest:
    """What a checkpoint must be, file by file and tensor by tensor."""

    source: str = ""
    revision: str = ""
    files: tuple[CheckpointFile, ...] = ()
    # Upstream key pattern to component key; empty means equal.
    key_map: Mapping[str, str] = field(default_factory=dict)
    # Component id to its tensors.
    shape_map: Mapping[str, TensorTable] = field(default_factory=dict)
    # Component id to stored dtype.
    dtype_policy: Mapping[str, str] = field(default_factory=dict)
    sharding: str = ""
    adapters: tuple[str, ...] = ()
    checksum_policy: str = ""
    conversion_version: str = ""
    parity_tests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelPlan:
    """Degrees by named axis."""

    axes: Mapping[str, int] = field(default_factory=dict)
    mesh_order: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelismContract:
    """The axes that a model may be split along."""

    axes: tuple[str, ...] = ()
    valid_plans: tuple[ParallelPlan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityContract:
    """What a model is compared with."""

    reference: str = ""
    tests: tuple[ParityTestSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingContract:
    """The training methods that a model supports."""

    methods: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvenanceEntry:
    """One rung of a model's provenance."""

    model_id: str = ""
    # Such as "base", "distilled", "embedded".
    relation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """How the weights were trained, and so how they must be driven."""

    # The loop that the weights were trained for.
    assumes_loop: str = ""
    # Such as "flow_matching".
    objective: str = ""
    # Step counts that the weights were trained for; empty means any.
    steps: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model family as data: contract and factory."""

    model_id: str = ""
    family: str = ""
    description: str = ""
    variants: tuple[ModelVariantSpec, ...] = ()
    components: Mapping[str, ComponentSpec] = field(default_factory=dict)
    loops: Mapping[str, LoopSpec] = field(default_factory=dict)
    capabilities: CapabilityMatrix
    # File name of the manifest beside the card, or of the folder that a user supplies.
    checkpoint: str = ""
    processors: Mapping[str, ProcessorSpec] = field(default_factory=dict)
    parallelism: ParallelismContract
    caches: Mapping[str, CacheContract] = field(default_factory=dict)
    parity: ParityContract
    training: TrainingContract | None = None
    sampling: Mapping[str, ParameterSpec] = field(default_factory=dict)
    provenance: tuple[ProvenanceEntry, ...] = ()
    # The sampler that the loops use, such as "unipc_multistep".
    sampler: str = ""
    recipe: Recipe | None = None
    # Samplers that a request may name beside it, such as "flow_sde".
    samplers: tuple[str, ...] = ()
