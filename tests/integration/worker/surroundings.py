"""What a worker reaches out to, in this process: artifacts in memory, a scheduler's front."""

import hashlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import grpc

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.scheduler.v1 import scheduler_pb2, scheduler_pb2_grpc

WAIT_S_MAX = 120.0


class ArtifactServicer(artifacts_pb2_grpc.ArtifactServiceServicer):
    """Keeps artifacts in memory; may be told to be away for a while."""

    def __init__(self) -> None:
        self.stored: dict[str, tuple[artifacts_pb2.PutArtifactHeader, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.chunk_sizes: list[int] = []
        self.away_calls = 0
        self.is_broken = False
        # Cleared: what is put waits until it is set.
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def PutArtifact(self, request_iterator: Any, context: Any) -> Any:
        if self.away_calls > 0:
            self.away_calls -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "away")
        if self.is_broken:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "broken")
        messages = list(request_iterator)
        self.may_go_on.wait(WAIT_S_MAX)
        header, chunks = messages[0].header, [message.chunk for message in messages[1:]]
        data = b"".join(chunks)
        self.chunk_sizes.extend(len(chunk) for chunk in chunks)
        assert hashlib.sha256(data).hexdigest() == header.expected_digest
        self.stored[header.artifact_id] = (header, data)
        response = artifacts_pb2.PutArtifactResponse()
        record = response.record
        record.artifact_id = header.artifact_id
        record.kind = header.kind
        record.digest = header.expected_digest
        record.size_bytes = len(data)
        record.producer.CopyFrom(header.producer)
        record.created_at.FromDatetime(datetime.now(UTC))
        return response

    def GetArtifact(self, request: Any, context: Any) -> Any:
        data = self.stored[request.artifact_id][1]
        yield artifacts_pb2.GetArtifactResponse(chunk=data)

    def PutBlob(self, request_iterator: Any, context: Any) -> Any:
        first, *rest = request_iterator
        data = b"".join(message.chunk for message in rest)
        assert hashlib.sha256(data).hexdigest() == first.header.digest
        assert len(data) == first.header.size_bytes
        self.blobs[first.header.digest] = data
        return artifacts_pb2.PutBlobResponse(digest=first.header.digest, size_bytes=len(data))

    def GetBlob(self, request: Any, context: Any) -> Any:
        if request.digest not in self.blobs:
            context.abort(grpc.StatusCode.NOT_FOUND, "no such blob")
        yield artifacts_pb2.GetBlobResponse(chunk=self.blobs[request.digest])


class SchedulerServicer(scheduler_pb2_grpc.SchedulerServiceServicer):
    """Notes who announced itself."""

    def __init__(self) -> None:
        self.announced: list[scheduler_pb2.AnnounceWorkerRequest] = []

    def AnnounceWorker(self, request: Any, context: Any) -> Any:
        self.announced.append(request)
        return scheduler_pb2.AnnounceWorkerResponse(leader=True)


@dataclass
class Surroundings:
    """What a worker reaches out to."""

    address: str
    artifacts: ArtifactServicer
    scheduler: SchedulerServicer


@contextmanager
def serving() -> Iterator[Surroundings]:
    """An artifact service and a scheduler's front, on one port."""
    server = grpc.server(ThreadPoolExecutor(4))
    # What a worker does not call stays as the base class has it: unimplemented.
    artifacts, scheduler = ArtifactServicer(), SchedulerServicer()
    artifacts_pb2_grpc.add_ArtifactServiceServicer_to_server(artifacts, server)
    scheduler_pb2_grpc.add_SchedulerServiceServicer_to_server(scheduler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield Surroundings(f"127.0.0.1:{port}", artifacts, scheduler)
    server.stop(0).wait()
