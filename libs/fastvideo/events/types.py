"""The envelope that every event travels in.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from fastvideo.artifacts.events import (
    ArtifactCompleted,
    ArtifactCreated,
    ArtifactDeleted,
    ArtifactUpdated,
    BlobRemovalDecided,
    BlobRemoved,
    MediaChunkAdded,
    MediaCompleted,
    MediaInitialized,
)
from fastvideo.requests.events import (
    RequestAccepted,
    RequestCancelled,
    RequestCancelRequested,
    RequestCompleted,
    RequestDeleted,
    RequestExpired,
    RequestFailed,
    RequestLogged,
    RequestProgressed,
    RequestQueued,
    RequestStarted,
)
from fastvideo.requests.sealing import TenantErased
from fastvideo.requests.tenants import ApiKeyCreated, ApiKeyRevoked, TenantPolicySet
from fastvideo.scheduling.events import (
    BatchExecuted,
    LeaderElected,
    LoopFailed,
    LoopPrepared,
    RequestSnapshotted,
    SchedulerDecided,
    WorkerAttached,
    WorkerDetached,
    WorkerDraining,
    WorkerLost,
    WorkerReattached,
)
from fastvideo.scheduling.traces import (
    BehaviorRecorded,
    CacheAccessed,
    ComponentsTraced,
    GraphUsed,
    MemoryReported,
    NonFiniteFound,
    ParityChecked,
    TransferRecorded,
    WeightsChanged,
)
from fastvideo.sessions.events import (
    SessionClosed,
    SessionCreated,
    SessionTextPushed,
    SessionUpdated,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventMetadata:
    """What every event carries so that it can be found and explained."""

    tenant_id: str = ""
    request_id: str = ""
    session_id: str = ""
    program_id: str = ""
    model_id: str = ""
    model_instance_id: str = ""
    loop_id: str = ""
    worker_id: str = ""
    role_id: str = ""
    artifact_id: str = ""
    # W3C traceparent of the span that caused the event.
    traceparent: str = ""
    # Component or package name to version.
    versions: Mapping[str, str] = field(default_factory=dict)
    # Id of the event that led to this one.
    causation_id: str = ""
    # When the writer decided it; the log's own time is recorded_at.
    occurred_at: datetime


EventPayload = (
    RequestAccepted
    | RequestQueued
    | RequestStarted
    | RequestProgressed
    | RequestCancelRequested
    | RequestCancelled
    | RequestFailed
    | RequestCompleted
    | RequestLogged
    | ArtifactCreated
    | ArtifactUpdated
    | ArtifactCompleted
    | MediaInitialized
    | MediaChunkAdded
    | MediaCompleted
    | SessionCreated
    | SessionUpdated
    | SessionClosed
    | WorkerAttached
    | WorkerLost
    | LoopPrepared
    | LoopFailed
    | BatchExecuted
    | SchedulerDecided
    | LeaderElected
    | WorkerDraining
    | WorkerReattached
    | RequestSnapshotted
    | WorkerDetached
    | CacheAccessed
    | TransferRecorded
    | WeightsChanged
    | ParityChecked
    | ComponentsTraced
    | BehaviorRecorded
    | NonFiniteFound
    | MemoryReported
    | GraphUsed
    | TenantErased
    | ApiKeyCreated
    | ApiKeyRevoked
    | TenantPolicySet
    | RequestDeleted
    | RequestExpired
    | ArtifactDeleted
    | BlobRemovalDecided
    | BlobRemoved
    | SessionTextPushed
)
"""What an event says, by type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event as it is on the bus and in a watch."""

    event_id: str = ""
    partition: int = 0
    # Gapless within the partition, from 1.
    offset: int = 0
    stream_id: str = ""
    # Gapless within the stream, from 1; the sequence number of a watch.
    stream_version: int = 0
    # Past-tense name of the payload, such as "RequestAccepted".
    type: str = ""
    # Public name, such as "request.accepted".
    name: str = ""
    schema_version: int = 0
    metadata: EventMetadata
    recorded_at: datetime
    log_epoch: int = 0
    payload: EventPayload
