"""A gateway that asks for keys, with the services behind it, and parties that have some."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc

from fastvideo.api.artifacts.v1 import artifacts_pb2, artifacts_pb2_grpc
from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.api.gateway.v1 import gateway_pb2_grpc, keys_pb2, keys_pb2_grpc
from fastvideo.api.sessions.v1 import sessions_pb2, sessions_pb2_grpc
from fastvideo.requests.events import RequestCompleted, RequestStarted
from fastvideo.requests.types import RequestMetrics
from fastvideo.rpc.api_keys import ApiToken
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.outgoing import with_key
from fastvideo_artifacts.app import running_artifacts
from fastvideo_artifacts.config import Config as ArtifactsConfig
from fastvideo_gateway.access.config import AccessConfig, Auth
from fastvideo_sessions.app import running_sessions
from tests.integration.gateway.worlds import (
    MODEL,
    World,
    gateway_config,
    submit_message,
    world_of,
)
from tests.integration.sessions.worlds import sessions_config
from tests.plugins.http import Answer, call
from tests.plugins.waiting import eventually

if TYPE_CHECKING:
    from fastvideo.api.artifacts.v1.artifacts_pb2_grpc import ArtifactServiceAsyncStub
    from fastvideo.api.gateway.v1.gateway_pb2_grpc import GatewayServiceAsyncStub
    from fastvideo.api.gateway.v1.keys_pb2_grpc import KeyServiceAsyncStub
    from fastvideo.api.sessions.v1.sessions_pb2_grpc import SessionServiceAsyncStub

JSON: Final[Mapping[str, str]] = {"Content-Type": "application/json"}
ADMIN: Final = ApiToken.new("admin")
_DONE: Final = RequestCompleted(metrics=RequestMetrics(total_seconds=2.0, units=3))


@dataclass(frozen=True)
class Party:
    """Somebody with a key, or without."""

    key: str = field(repr=False)
    channel: grpc.aio.Channel
    http_address: str

    @property
    def gateway(self) -> "GatewayServiceAsyncStub":
        return gateway_pb2_grpc.GatewayServiceStub(self.channel)

    @property
    def artifacts(self) -> "ArtifactServiceAsyncStub":
        return artifacts_pb2_grpc.ArtifactServiceStub(self.channel)

    @property
    def sessions(self) -> "SessionServiceAsyncStub":
        return sessions_pb2_grpc.SessionServiceStub(self.channel)

    @property
    def keys(self) -> "KeyServiceAsyncStub":
        return keys_pb2_grpc.KeyServiceStub(self.channel)

    async def http(
        self,
        method: str,
        path: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] = JSON,
    ) -> Answer:
        """One request with the key."""
        shown = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        return await call(
            self.http_address, path, method=method, body=body, headers={**headers, **shown}
        )


@dataclass(frozen=True)
class Owned:
    """What a party has."""

    request_id: str
    session_id: str
    upload_id: str
    output_id: str
    digest: str
    page_token: str = ""
    session_token: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        return (self.request_id, self.session_id, self.upload_id, self.output_id)


@dataclass(frozen=True)
class Keyed:
    """The place."""

    world: World
    artifacts: "ArtifactServiceAsyncStub"
    stack: AsyncExitStack

    @property
    def admin(self) -> Party:
        """Whoever has the mounted operator's key."""
        return self.party(ADMIN.text)

    def party(self, key: str = "") -> Party:
        """Whoever shows a key."""
        address = self.world.gateway.address
        channel = open_channel(address, interceptors=with_key(key))
        self.stack.push_async_callback(channel.close)
        return Party(key, channel, self.world.gateway.http_address)

    async def join(self, tenant_id: str, **fields: Any) -> Party:
        """A party with a fresh key of a tenant."""
        request = keys_pb2.CreateKeyRequest(**{"tenant_id": tenant_id, "name": "test", **fields})
        return self.party((await self.admin.keys.CreateKey(request)).api_key)

    async def furnish(self, party: Party, tenant_id: str) -> Owned:
        """Two requests, one ended with a file, a session, and an upload."""
        session = await party.sessions.CreateSession(
            sessions_pb2.CreateSessionRequest(model_ids=[MODEL])
        )
        upload = await party.artifacts.PutArtifact(iter(_latents()))
        message = submit_message("a secret three", idempotency_key="first")
        request_id = (await party.gateway.SubmitRequest(message)).state.spec.request_id
        await party.gateway.SubmitRequest(submit_message("a red three"))
        await party.sessions.CreateSession(sessions_pb2.CreateSessionRequest(model_ids=[MODEL]))
        await self.world.schedule(request_id, RequestStarted(attempt=1))
        output = await self.artifacts.PutArtifact(iter(_output(request_id, tenant_id)))
        record = output.record
        await self.world.schedule(request_id, replace(_DONE, artifact_ids=(record.artifact_id,)))
        owned = Owned(
            request_id,
            session.state.session_id,
            upload.record.artifact_id,
            record.artifact_id,
            record.digest,
        )

        async def listed() -> bool:
            return (await party.http("GET", f"/api/requests/{request_id}")).status == 200

        await eventually(listed, timeout_s=30)
        page = (await party.http("GET", "/api/requests?limit=1")).json["next_cursor"]
        sessions = await party.sessions.ListSessions(sessions_pb2.ListSessionsRequest(page_size=1))
        return replace(owned, page_token=page, session_token=sessions.next_page_token)


@asynccontextmanager
async def keyed_place(dsn: str, folder: Path) -> AsyncIterator[Keyed]:
    """Gateway, artifacts and sessions; no worker."""
    admin = folder / "admin.key"
    admin.write_text(ADMIN.text)
    config = ArtifactsConfig(
        listen="127.0.0.1:0", service_id="artifacts", postgres_dsn=dsn, blobs_url=folder.as_uri()
    )
    async with AsyncExitStack() as stack:
        artifacts = await stack.enter_async_context(running_artifacts(config))
        sessions = await stack.enter_async_context(running_sessions(sessions_config(dsn)))
        given = gateway_config(dsn, artifacts=artifacts.address, sessions=sessions.address)
        given = replace(given, access=AccessConfig(Auth.KEYS, admin))
        world = await stack.enter_async_context(world_of(given))
        channel = await stack.enter_async_context(open_channel(artifacts.address))
        parties = await stack.enter_async_context(AsyncExitStack())
        yield Keyed(world, artifacts_pb2_grpc.ArtifactServiceStub(channel), parties)


def _latents() -> list[artifacts_pb2.PutArtifactRequest]:
    header = b'{"latents":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
    data = len(header).to_bytes(8, "little") + header + bytes(4)
    return [
        artifacts_pb2.PutArtifactRequest(
            header=artifacts_pb2.PutArtifactHeader(kind=artifact_pb2.ARTIFACT_KIND_LATENT)
        ),
        artifacts_pb2.PutArtifactRequest(chunk=data),
    ]


def _output(request_id: str, tenant_id: str) -> list[artifacts_pb2.PutArtifactRequest]:
    """A request's video, as its worker puts it."""
    header = artifacts_pb2.PutArtifactHeader(
        artifact_id=f"art_of_{request_id}",
        kind=artifact_pb2.ARTIFACT_KIND_VIDEO,
        name="video.mp4",
        content_type="video/mp4",
        producer=artifact_pb2.Producer(request_id=request_id, node_id="write"),
        tenant_id=tenant_id,
    )
    return [
        artifacts_pb2.PutArtifactRequest(header=header),
        artifacts_pb2.PutArtifactRequest(chunk=b"frames" * 100),
    ]
