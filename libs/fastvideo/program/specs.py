"""Programs as data: nodes, edges and what they carry.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from dataclasses import dataclass
from enum import StrEnum

from fastvideo.model.tensors import TensorSchema
from fastvideo.requests.types import RequestKind


class ProgramKind(StrEnum):
    """What a program is."""

    INLINE = "inline"
    DISAGGREGATED = "disaggregated"
    WORKFLOW = "workflow"
    TRAINING = "training"
    REALTIME = "realtime"


class NodeKind(StrEnum):
    """What a node does."""

    MODEL_LOOP = "model_loop"
    COMPONENT = "component"
    EXTERNAL = "external"
    ARTIFACT = "artifact"
    CONTROL = "control"
    STREAM = "stream"
    TRANSFER = "transfer"


class EdgeKind(StrEnum):
    """What flows along an edge."""

    TENSOR = "tensor"
    ARTIFACT = "artifact"
    STREAM = "stream"
    CONTROL = "control"
    CACHE = "cache"
    BEHAVIOR = "behavior"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramNode:
    """One step of a program."""

    node_id: str = ""
    kind: NodeKind
    # The loop that a model loop, component or artifact node drives.
    loop_id: str = ""
    # The component that a component node calls.
    component_id: str = ""
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    role: str = ""
    # The node's share of the request's progress; shares are normalised.
    progress_weight: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEdge:
    """What flows from one node to another."""

    kind: EdgeKind
    source_node: str = ""
    target_node: str = ""
    # The value that flows; empty on a control edge.
    value: str = ""
    schema: TensorSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSpec:
    """How the loops of a model are composed for a task."""

    program_id: str = ""
    kind: ProgramKind
    # The capability that the program serves, such as "text_to_video".
    capability: str = ""
    # Values that the request itself supplies, such as "prompt".
    request_inputs: tuple[str, ...] = ()
    nodes: tuple[ProgramNode, ...] = ()
    edges: tuple[ProgramEdge, ...] = ()
    request_kind: RequestKind
    # The program of its kind that serves when a request names none.
    is_default: bool = False
