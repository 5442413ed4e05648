"""What a scheduler tells a worker to do.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fastvideo.requests.types import RequestSpec
from fastvideo.scheduling.work import LoopRef, LoopSnapshot, UnitKind


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareLoop:
    """Make a loop's state and plan its first unit."""

    loop: LoopRef
    loop_id: str = ""
    model_instance_id: str = ""
    request: RequestSpec
    # Value name of the loop's input to "node.output" on this worker.
    inputs: Mapping[str, str] = field(default_factory=dict)
    # W3C traceparent of the request's span.
    traceparent: str = ""
    # Make the loop from this snapshot rather than from its beginning.
    restore: LoopSnapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecuteBatch:
    """Run units that are prepared and may share a forward.

    The steps that follow them in the same loops run too, up to the window.
    """

    batch_id: str = ""
    kind: UnitKind
    unit_ids: tuple[str, ...] = ()
    predicted_seconds: float = 0.0
    window: int = 0
    traceparent: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLoops:
    """Free the state of every loop and value of a request's attempt."""

    request_id: str = ""
    attempt: int = 0
    # Only these nodes; none means all.
    node_ids: tuple[str, ...] = ()
    # The same attempt may come again.
    forget: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLoops:
    """Save the loops and the kept outputs of an attempt, each at its next boundary."""

    request_id: str = ""
    attempt: int = 0
    # Free them afterwards.
    release: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class YieldBatch:
    """Stop a window at its next boundary."""

    batch_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelStream:
    """Write no more chunks of one output stream."""

    request_id: str = ""
    attempt: int = 0
    name: str = ""
