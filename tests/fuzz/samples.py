"""Calls that are right, for a hostile hand to change one thing about."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from google.protobuf.message import Message

from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.api.common.v1 import artifact_pb2, request_pb2
from fastvideo.api.events.v1 import log_pb2
from fastvideo.api.gateway.v1 import gateway_pb2
from fastvideo.api.replay.v1 import replay_pb2
from fastvideo.api.scheduler.v1 import scheduler_pb2
from fastvideo.api.sessions.v1 import sessions_pb2

_PNG: Final = b"\x89PNG\r\n\x1a\n" + bytes(16)

SAMPLES: Final[Mapping[str, tuple[Message, ...]]] = MappingProxyType(
    {
        "SubmitRequest": (
            gateway_pb2.SubmitRequestRequest(
                model_id="moving-digits",
                inputs=[
                    request_pb2.InputPart(
                        text=request_pb2.TextPart(role="prompt", text="a red three")
                    )
                ],
                sampling=request_pb2.SamplingOverrides(
                    width=48, height=48, num_frames=5, fps=8, steps=2, seed=7
                ),
                outputs=request_pb2.OutputSpec(video=True),
            ),
        ),
        "PutArtifact": (
            artifacts_pb2.PutArtifactRequest(
                header=artifacts_pb2.PutArtifactHeader(kind=artifact_pb2.ARTIFACT_KIND_IMAGE)
            ),
            artifacts_pb2.PutArtifactRequest(chunk=_PNG),
        ),
        "CreateSession": (sessions_pb2.CreateSessionRequest(model_ids=["moving-digits"]),),
        "ReadLog": (
            log_pb2.ReadLogRequest(
                filter=log_pb2.EventFilter(types=["request.accepted"]), after={0: 0}, page_size=10
            ),
        ),
        "ReadStream": (log_pb2.ReadStreamRequest(stream_id="request-x", page_size=10),),
        "Replay": (replay_pb2.ReplayRequest(kind=replay_pb2.REPLAY_KIND_STATE),),
        "AnnounceWorker": (
            scheduler_pb2.AnnounceWorkerRequest(
                worker_id="worker-9", address="127.0.0.1:1", incarnation="one"
            ),
        ),
    }
)
"""The messages of a good call, by the name of its method."""
