"""WorkerService: the scheduler's stream, and the same operations one by one."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, Final

from fastvideo import wire
from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.clock import Clock
from fastvideo.engine.executor import Executor
from fastvideo.engine.transfers import Transfers
from fastvideo.errors import (
    FailedPrecondition,
    FastVideoError,
    Fenced,
    InvalidField,
    Unavailable,
)
from fastvideo.media.tensors import decode_tensors
from fastvideo.memory.pools import MemoryTag
from fastvideo.memory.system import resident_process_bytes
from fastvideo.model.cache_checks import check_record
from fastvideo.model.caching import CacheClass, CacheRecord
from fastvideo.model.transfers import TransferManifest
from fastvideo.replay.process import Replays
from fastvideo.scheduling.commands import ExecuteBatch, PrepareLoop
from fastvideo.scheduling.events import LoopFailed
from fastvideo.scheduling.work import CancelScope
from fastvideo.telemetry.logging import get_logger
from fastvideo_worker.assignments import Assignments
from fastvideo_worker.attachment import Attachment
from fastvideo_worker.commands import Commands
from fastvideo_worker.fence import Fence
from fastvideo_worker.lanes import Lane
from fastvideo_worker.models import Models
from fastvideo_worker.replaying import check_request
from fastvideo_worker.status import WorkerStatus

_LOG: Final = get_logger(__name__)

# A cancel answers after the step that runs, or after this long, seconds.
_BOUNDARY_S_MAX: Final = 60.0

# A stream that must be renewed waits this long, seconds, for its requests to end.
_IDLE_S_MAX: Final = 60.0

Context = Any


class WorkerService(worker_pb2_grpc.WorkerServiceServicer):
    """Serves one worker. Compute never runs on the event loop."""

    def __init__(
        self,
        *,
        status: WorkerStatus,
        executor: Executor,
        commands: Commands,
        assignments: Assignments,
        models: Models,
        compute: Lane,
        io: Lane,
        clock: Clock,
        replays: Replays,
    ) -> None:
        self._status = status
        self._executor = executor
        self._transfers = Transfers(executor.values, executor.noting.book, clock)
        self._commands = commands
        self._assignments = assignments
        self._models = models
        self._compute = compute
        self._io = io
        self._clock = clock
        self._replays = replays
        self._fence = Fence()
        self._attachment: Attachment | None = None

    @property
    def is_attached(self) -> bool:
        """Whether a scheduler's stream is up."""
        return self._attachment is not None

    @property
    def is_idle(self) -> bool:
        """Whether nothing is here and all that was begun is reported."""
        return self._assignments.idle

    def announce_drain(self, reason: str) -> None:
        """Take no new request from now on, and say so to the scheduler."""
        self._status.draining = self._commands.draining = True
        # What only waits for its place finds another one sooner.
        self._executor.give_up_waiting(Unavailable(reason, reason="DRAINING"))
        self._assignments.drain(reason)

    def detach(self, error: FastVideoError | None = None) -> None:
        """End the scheduler's stream."""
        if self._attachment is not None:
            self._attachment.end(error)

    async def Attach(
        self, request_iterator: AsyncIterator[worker_pb2.AttachRequest], context: Context
    ) -> AsyncIterator[worker_pb2.AttachResponse]:
        """Be driven by a scheduler: one that goes on with what is here, or begins from nothing."""
        first = await anext(aiter(request_iterator), None)
        if first is None or first.WhichOneof("message") != "hello":
            raise InvalidField("message", None, "Hello as the first message")
        hello = first.hello
        self._check_incarnation(hello.resume_incarnation)
        self._check_ready()
        attachment = Attachment(first.epoch, hello, self._assignments, self._clock)
        self._fence.check(first.epoch)
        if self._attachment is not None:
            self._attachment.end(Fenced("another scheduler attached", reason="SUPERSEDED"))
        resumes = self._assignments.can_resume(hello.resume_incarnation, hello.resume_after)
        if not resumes:
            self._check_attachable()
        self._attachment = attachment
        _LOG.info(
            "scheduler attached",
            epoch=first.epoch,
            scheduler_id=attachment.scheduler_id,
            resumes=resumes,
        )
        try:
            if resumes:
                self._assignments.resume(attachment, hello.resume_after)
            else:
                await self._assignments.start_over()
                attachment.send(self._status.attached())
                if self._attachment is attachment:
                    self._assignments.begin(attachment)
            async for response in attachment.serve(request_iterator):
                yield response
        finally:
            self._assignments.detach(attachment)
            if self._attachment is attachment:
                self._attachment = None
            _LOG.info("scheduler detached", epoch=first.epoch)

    async def LoadModel(
        self, request: worker_pb2.LoadModelRequest, context: Context
    ) -> worker_pb2.LoadModelResponse:
        """Load and warm a model."""
        instance = await self._models.load(request.model_id, request.checkpoint)
        self._reattach()
        return worker_pb2.LoadModelResponse(state=wire.to_proto(instance.state()))

    async def UnloadModel(
        self, request: worker_pb2.UnloadModelRequest, context: Context
    ) -> worker_pb2.UnloadModelResponse:
        """Free a model, its loops and its cached features."""
        freed = await self._models.unload(request.model_instance_id)
        self._reattach()
        return worker_pb2.UnloadModelResponse(freed_bytes=freed)

    async def PrepareLoop(
        self, request: worker_pb2.PrepareLoopRequest, context: Context
    ) -> worker_pb2.PrepareLoopResponse:
        """Make a loop's state and plan its first unit."""
        await self._admit(request.epoch)
        command = wire.from_proto(PrepareLoop, request.loop)
        event = await self._commands.prepare(command)
        if isinstance(event, LoopFailed):
            error = event.error
            raise FailedPrecondition(
                error.message,
                reason=error.reason,
                subject=error.subject,
                attributes=error.attributes,
            )
        return worker_pb2.PrepareLoopResponse(plan=wire.to_proto(event.plan))

    async def ExecuteWork(
        self,
        request_iterator: AsyncIterator[worker_pb2.ExecuteWorkRequest],
        context: Context,
    ) -> AsyncIterator[worker_pb2.ExecuteWorkResponse]:
        """Run batches one after another."""
        async for request in request_iterator:
            await self._admit(request.epoch)
            executed = await self._commands.execute(wire.from_proto(ExecuteBatch, request.batch))
            yield worker_pb2.ExecuteWorkResponse(result=wire.to_proto(executed))

    async def Cancel(
        self, request: worker_pb2.CancelRequest, context: Context
    ) -> worker_pb2.CancelResponse:
        """Free the loops of a scope; answers when the running ones reached their boundary."""
        await self._admit(request.epoch)
        refs = self._executor.cancel(wire.from_proto(CancelScope, request.scope))
        if refs:
            await self._models.boundary(refs, _BOUNDARY_S_MAX)
        return worker_pb2.CancelResponse(loops=[wire.to_proto(ref) for ref in refs])

    async def PublishCache(
        self, request: worker_pb2.PublishCacheRequest, context: Context
    ) -> worker_pb2.PublishCacheResponse:
        """Put a value that was computed elsewhere into the feature cache."""
        record = wire.from_proto(CacheRecord, request.record)
        _check_record(record, request.value)
        with self._executor.values.staging.hold(record.key_digest, len(request.value)):
            tensors = decode_tensors(request.value)
        if set(tensors) != {"value"}:
            raise InvalidField("value", sorted(tensors), "one tensor named value")
        executor = self._executor
        stored = await self._compute.run(lambda: executor.publish(record.key, tensors["value"]))
        return worker_pb2.PublishCacheResponse(stored=stored)

    async def Transfer(
        self, request: worker_pb2.TransferRequest, context: Context
    ) -> worker_pb2.TransferResponse:
        """Take in the tensors of a payload, or hand out those that a manifest names."""
        manifest = wire.from_proto(TransferManifest, request.manifest)
        transfers = self._transfers
        if request.payload:
            await self._io.run(lambda: transfers.receive(manifest, request.payload))
            return worker_pb2.TransferResponse(manifest=request.manifest)
        filled, payload, staged = await self._io.run(lambda: transfers.send(manifest))
        # The payload is in memory until the answer has left.
        context.add_done_callback(lambda _: staged.close())
        return worker_pb2.TransferResponse(manifest=wire.to_proto(filled), payload=payload)

    async def Sleep(
        self, request: worker_pb2.SleepRequest, context: Context
    ) -> worker_pb2.SleepResponse:
        """Free the memory of the tags; refused while a request needs it.

        While its weights sleep, a worker takes no scheduler; it announces itself on, and the
        next one attaches after Wake.
        """
        tags = _tags(request.tags)
        freed = await self._models.sleep(tags)
        if MemoryTag.WEIGHTS in tags:
            self._reattach()
        return worker_pb2.SleepResponse(freed_bytes=freed)

    async def Wake(
        self, request: worker_pb2.WakeRequest, context: Context
    ) -> worker_pb2.WakeResponse:
        """Bring back what slept."""
        restored = await self._models.wake(_tags(request.tags))
        return worker_pb2.WakeResponse(restored_bytes=restored)

    async def Health(
        self, request: worker_pb2.HealthRequest, context: Context
    ) -> worker_pb2.HealthResponse:
        """Answers at once, whatever computes."""
        status = self._status
        instances, usage = status.residents.all(), status.pools.usage()
        return worker_pb2.HealthResponse(
            ready=status.ready and not status.draining and MemoryTag.WEIGHTS not in status.sleeping,
            worker_id=status.worker_id,
            instances=[wire.to_proto(instance.state()) for instance in instances],
            memory_bytes={tag.value: pool.in_use for tag, pool in usage.items()},
            loops=self._executor.loops,
            sleeping_tags=sorted(status.sleeping),
            fingerprint=dict(status.fingerprint),
            start_seconds=dict(status.start_seconds),
            memory_budget_bytes={tag.value: pool.budget for tag, pool in usage.items()},
            memory_high_water_bytes={tag.value: pool.high_water for tag, pool in usage.items()},
            memory_reserved_bytes={tag.value: pool.reserved for tag, pool in usage.items()},
            process_bytes=resident_process_bytes(),
        )

    async def _admit(self, epoch: int) -> None:
        """Refuse an older epoch; a newer one begins from nothing."""
        self._check_ready()
        if self._fence.check(epoch):
            self.detach(Fenced("a newer epoch has begun"))
            await self._assignments.start_over()

    def _check_ready(self) -> None:
        if not self._status.ready:
            raise Unavailable(f"{self._status.worker_id} is loading its models")

    def _check_incarnation(self, incarnation: str) -> None:
        """Refuse, also while models load, whoever wants the loops of a process that is gone."""
        if incarnation not in ("", self._status.incarnation):
            raise FailedPrecondition(
                f"{self._status.worker_id} has begun anew since {incarnation}",
                reason="WORKER_REPLACED",
                subject="hello.resume_incarnation",
            )

    def _check_attachable(self) -> None:
        self._check_ready()
        if self._status.draining:
            raise Unavailable(f"{self._status.worker_id} is draining", reason="DRAINING")
        if MemoryTag.WEIGHTS in self._status.sleeping:
            raise Unavailable(f"the weights of {self._status.worker_id} sleep", reason="ASLEEP")

    async def Replay(
        self, request: worker_pb2.ReplayRequest, context: Context
    ) -> AsyncGenerator[worker_pb2.ReplayResponse, None]:
        """Run a logged run again, in a process of its own, beside all that is served."""
        served = [instance.card.model_id for instance in self._status.residents.all()]
        check_request(request, served)
        async with aclosing(self._replays.run(request)) as responses:
            async for response in responses:
                yield worker_pb2.ReplayResponse(response=response)

    def _reattach(self) -> None:
        """A scheduler learns of other models when it attaches, so it is made to attach anew."""
        self._assignments.must_begin_anew()
        if self._attachment is not None:
            changed = Unavailable("the models of this worker changed", reason="MODELS_CHANGED")
            self._attachment.end_when_idle(changed, within_s=_IDLE_S_MAX)


def _check_record(record: CacheRecord, value: bytes) -> None:
    if record.cache_class is not CacheClass.TEXT_ENCODER_OUTPUT:
        raise InvalidField(
            "record.cache_class", record.cache_class.value, CacheClass.TEXT_ENCODER_OUTPUT.value
        )
    check_record(record)
    found = hashlib.sha256(value).hexdigest()
    if record.value_digest != found:
        raise InvalidField("record.value_digest", record.value_digest, f"{found}, the value's own")


_SLEEPING: Final = (MemoryTag.WEIGHTS, MemoryTag.CACHES, MemoryTag.ACTIVATIONS)


def _tags(names: Any) -> frozenset[MemoryTag]:
    """The tags of a request; none means all that can sleep."""
    for name in names:
        if name not in _SLEEPING:
            raise InvalidField("tags", name, ", ".join(_SLEEPING))
    return frozenset(MemoryTag(name) for name in names) or frozenset(_SLEEPING)
