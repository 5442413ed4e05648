"""Every service of a stack with mTLS: it works, and strangers get nowhere."""

import asyncio
import http.client
import os
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from fastvideo.api.worker.v1 import worker_pb2, worker_pb2_grpc
from fastvideo.client import AsyncClient, CallPolicy
from fastvideo.errors import Unavailable
from fastvideo.requests.types import RequestStatus
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.handshakes import REFUSED, TLS_ONLY, UNTRUSTED
from fastvideo.rpc.tls import ClientTls, ServerTls, TlsConfig
from fastvideo_artifacts.app import running_artifacts
from fastvideo_artifacts.config import Config as ArtifactsConfig
from fastvideo_gateway.app import RunningGateway, running_gateway
from fastvideo_scheduler.app import running_scheduler
from fastvideo_scheduler.config import Config as SchedulerConfig
from fastvideo_sessions.app import running_sessions
from tests.integration.gateway.worlds import MODEL, gateway_config
from tests.integration.scheduler.scripted_worker import ScriptedWorker
from tests.integration.sessions.worlds import sessions_config
from tests.plugins.certificates import Authority, Pair
from tests.plugins.waiting import eventually

# A PNG by its first bytes, which is what the gateway looks at.
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)
WAIT_S = 120.0
LISTEN = "127.0.0.1:0"


@dataclass(frozen=True)
class Place:
    """The stack, and who may come in."""

    authority: Authority
    gateway: RunningGateway
    worker: ScriptedWorker
    scheduler: str
    artifacts: str

    def tls(self, pair: Pair | None) -> ClientTls:
        """Whoever trusts the authority and shows a certificate."""
        ca = self.authority.file
        return ClientTls(ca) if pair is None else ClientTls(ca, pair.certificate, pair.key)


def both(authority: Authority, name: str) -> TlsConfig:
    """What a service named so has: one certificate to serve and to dial with."""
    pair = authority.issue(name)
    return TlsConfig(
        ServerTls(pair.certificate, pair.key, authority.file),
        ClientTls(authority.file, pair.certificate, pair.key),
    )


@asynccontextmanager
async def stacked(dsn: str, folder: Path) -> AsyncIterator[Place]:
    authority = Authority(folder)
    async with AsyncExitStack() as stack:
        artifacts = await stack.enter_async_context(
            running_artifacts(
                ArtifactsConfig(
                    listen=LISTEN,
                    service_id="artifacts",
                    postgres_dsn=dsn,
                    blobs_url=(folder / "blobs").as_uri(),
                    tls=both(authority, "artifacts"),
                )
            )
        )
        sessions = await stack.enter_async_context(
            running_sessions(replace(sessions_config(dsn), tls=both(authority, "sessions")))
        )
        scheduler = await stack.enter_async_context(
            running_scheduler(
                SchedulerConfig(
                    listen=LISTEN,
                    service_id="scheduler",
                    postgres_dsn=dsn,
                    models=(MODEL,),
                    tls=both(authority, "scheduler"),
                )
            )
        )
        worker = await stack.enter_async_context(
            ScriptedWorker("worker", [scheduler.address], tls=both(authority, "worker"))
        )
        gateway = await stack.enter_async_context(
            running_gateway(
                replace(
                    gateway_config(dsn, artifacts=artifacts.address, sessions=sessions.address),
                    scheduler_addresses=(scheduler.address,),
                    tls=both(authority, "gateway"),
                )
            )
        )
        yield Place(authority, gateway, worker, scheduler.address, artifacts.address)


async def refused(address: str, tls: ClientTls | None) -> Unavailable:
    """Why a client does not get in; it does not wait for a better time."""
    async with AsyncClient(address, tls=tls, policy=CallPolicy(timeout_s=WAIT_S)) as client:
        with pytest.raises(Unavailable) as caught:
            await client.models()
    return caught.value


@pytest.mark.slow
async def test_a_stack_with_mtls_works_and_lets_no_stranger_in(
    postgres_dsn: str, tmp_path: Path
) -> None:
    async with stacked(postgres_dsn, tmp_path) as place:
        authority, address = place.authority, place.gateway.address
        alice = place.tls(authority.issue("alice"))
        async with AsyncClient(address, tls=alice) as client:
            # Through the scheduler, which dials the worker that announced itself.
            request = await client.submit("a red three", model_id=MODEL)
            ended = await asyncio.wait_for(client.wait(request.request_id), WAIT_S)
            assert ended.status is RequestStatus.COMPLETED
            # Through the services behind the gateway.
            await client.create_session(model_ids=[MODEL])
            record = await client.upload(PNG)
            assert await client.read_artifact(record.artifact_id) == PNG

        other = Authority(tmp_path, "other")
        assert (await refused(address, None)).reason == TLS_ONLY
        assert (await refused(address, place.tls(None))).reason == REFUSED
        assert (await refused(address, place.tls(other.issue("mallory")))).reason == REFUSED
        late = await refused(address, place.tls(authority.issue("late", days=-1)))
        assert late.reason == REFUSED
        assert "expired" in late.message
        pair = authority.issue("bob")
        mistaken = ClientTls(other.file, pair.certificate, pair.key)
        assert (await refused(address, mistaken)).reason == UNTRUSTED

        told = await commanded(address, authority.file, authority.issue("carol"))
        assert MODEL in told
        assert "none was shown" in await commanded(address, authority.file, None)

        # Whoever reaches the worker's port could fence its scheduler, if it could attach.
        epochs = list(place.worker.epochs)
        for stranger in (None, place.tls(None), place.tls(other.issue("eve"))):
            assert await attached(place.worker.address, stranger) is False
        assert place.worker.epochs == epochs
        await eventually(lambda: https_health(place.gateway.http_address, alice), timeout_s=WAIT_S)


async def commanded(address: str, ca: Path, pair: Pair | None) -> str:
    """What the command line says of the models of a gateway."""
    variables = {"FASTVIDEO_GATEWAY": address, "FASTVIDEO_TLS_CA": str(ca)}
    if pair is not None:
        variables["FASTVIDEO_TLS_CLIENT_CERT"] = str(pair.certificate)
        variables["FASTVIDEO_TLS_CLIENT_KEY"] = str(pair.key)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from fastvideo.cli.main import main; main()", "models"),
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), WAIT_S)
    return output.decode()


async def attached(address: str, tls: ClientTls | None) -> bool:
    """Whether somebody can attach to a worker as a leader of a far epoch."""

    async def hello() -> AsyncIterator[worker_pb2.AttachRequest]:
        yield worker_pb2.AttachRequest(epoch=2**40, hello=worker_pb2.Hello(scheduler_id="eve"))
        await asyncio.sleep(WAIT_S)

    async with open_channel(address, tls=tls) as channel:
        stub: Any = worker_pb2_grpc.WorkerServiceStub(channel)
        call = stub.Attach(hello(), timeout=WAIT_S)
        try:
            return await call.read() is not grpc.aio.EOF
        except grpc.aio.AioRpcError as error:
            return error.code() is not grpc.StatusCode.UNAVAILABLE
        finally:
            call.cancel()


async def https_health(address: str, tls: ClientTls) -> bool:
    """Whether the gateway is ready, as it says over HTTPS."""

    def ask() -> int:
        connection = http.client.HTTPSConnection(address, timeout=WAIT_S, context=tls.context())
        try:
            connection.request("GET", "/health/ready")
            return connection.getresponse().status
        finally:
            connection.close()

    return await asyncio.to_thread(ask) == 200
