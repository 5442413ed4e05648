"""TLS between a client and a server of ours: who gets in, who is told what, and replaced files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from fastvideo.errors import InvalidField, Unavailable
from fastvideo.rpc.channel import open_channel
from fastvideo.rpc.errors import from_rpc_error
from fastvideo.rpc.handshakes import NO_TLS, REFUSED, TLS_ONLY, UNTRUSTED, try_handshake
from fastvideo.rpc.server import Server
from fastvideo.rpc.tls import ClientTls, ServerTls
from fastvideo.service.probe import probe
from tests.plugins.certificates import Authority, Pair


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def serving(tls: ServerTls | None) -> AsyncIterator[str]:
    async with Server("127.0.0.1:0", [], tls=tls, grace_s=0.1) as server:
        yield server.address


async def check(address: str, tls: ClientTls | None) -> None:
    """Ask for health; a typed error when that fails."""
    async with open_channel(address, tls=tls) as channel:
        stub: Any = health_pb2_grpc.HealthStub(channel)
        try:
            await stub.Check(health_pb2.HealthCheckRequest(), timeout=60)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error) from error


async def failure(address: str, tls: ClientTls | None) -> Unavailable:
    """Why a client does not get in: what the call says, else what a handshake tells."""
    with pytest.raises(Unavailable) as caught:
        await check(address, tls)
    if caught.value.reason != "UNAVAILABLE":
        return caught.value
    found = await try_handshake(address, tls)
    assert found is not None, caught.value.message
    return found


def client(ca: Path, pair: Pair | None = None) -> ClientTls:
    return ClientTls(ca) if pair is None else ClientTls(ca, pair.certificate, pair.key)


async def test_a_client_that_trusts_the_server_gets_in(authority: Authority) -> None:
    pair = authority.issue("server")
    async with serving(ServerTls(pair.certificate, pair.key)) as address:
        await check(address, client(authority.file))
        assert (await failure(address, None)).reason == TLS_ONLY
    async with serving(None) as address:
        assert (await failure(address, client(authority.file))).reason == NO_TLS


async def test_only_a_certificate_of_the_right_authority_gets_in(
    authority: Authority, tmp_path: Path
) -> None:
    pair, other = authority.issue("server"), Authority(tmp_path, "other")
    async with serving(ServerTls(pair.certificate, pair.key, authority.file)) as address:
        await check(address, client(authority.file, authority.issue("client")))
        nobody = await failure(address, client(authority.file))
        assert nobody.reason == REFUSED
        assert "none was shown" in nobody.message
        stranger = await failure(address, client(authority.file, other.issue("stranger")))
        assert stranger.reason == REFUSED
        assert "another CA" in stranger.message
        late = await failure(address, client(authority.file, authority.issue("late", days=-1)))
        assert late.reason == REFUSED
        assert "expired" in late.message
        mistaken = await failure(address, client(other.file, authority.issue("client")))
        assert mistaken.reason == UNTRUSTED
        assert "issuer" in mistaken.message


async def test_a_name_and_a_date_that_are_wrong_are_told(authority: Authority) -> None:
    pair = authority.issue("server", days=-1)
    async with serving(ServerTls(pair.certificate, pair.key)) as address:
        expired = await failure(address, client(authority.file))
        assert expired.reason == UNTRUSTED
        assert "expired" in expired.message
    pair = authority.issue("server")
    async with serving(ServerTls(pair.certificate, pair.key)) as address:
        await check(address, ClientTls(authority.file, name="localhost"))
        other = await failure(address, ClientTls(authority.file, name="elsewhere.example"))
        assert other.reason == UNTRUSTED


async def test_replaced_files_are_used_without_a_restart(authority: Authority) -> None:
    pair = authority.issue("server", days=-1)
    async with serving(ServerTls(pair.certificate, pair.key)) as address:
        assert (await failure(address, client(authority.file))).reason == UNTRUSTED
        authority.issue("server")
        await check(address, client(authority.file))
        # Half of a replacement is none.
        pair.certificate.write_text("nonsense")
        await check(address, client(authority.file))


@asynccontextmanager
async def greeting(tls: ServerTls) -> AsyncIterator[str]:
    """A server as the gateway's HTTP is one."""

    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0, ssl=tls.context())
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_an_http_server_takes_another_authority_of_clients_without_a_restart(
    authority: Authority, tmp_path: Path
) -> None:
    pair, trusted = authority.issue("server"), tmp_path / "trusted.pem"
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")
    ours, theirs = first.issue("ours"), second.issue("theirs")
    trusted.write_bytes(first.file.read_bytes())
    async with greeting(ServerTls(pair.certificate, pair.key, trusted)) as address:

        async def gets_in(shown: Pair) -> bool:
            return await try_handshake(address, client(authority.file, shown)) is None

        assert [await gets_in(one) for one in (ours, theirs)] == [True, False]
        trusted.write_text("nonsense")
        assert [await gets_in(one) for one in (ours, theirs)] == [True, False]
        # Who was trusted before is no longer.
        trusted.write_bytes(second.file.read_bytes())
        assert [await gets_in(one) for one in (ours, theirs)] == [False, True]


async def test_an_http_server_uses_replaced_files_too(authority: Authority) -> None:
    pair = authority.issue("server", days=-1)
    async with greeting(ServerTls(pair.certificate, pair.key)) as address:
        found = await try_handshake(address, client(authority.file))
        assert found is not None
        assert "expired" in found.message
        authority.issue("server")
        assert await try_handshake(address, client(authority.file)) is None


def test_files_that_cannot_be_used_are_named(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair, other = authority.issue("server"), authority.issue("other")
    # Of a long path an error shows only the beginning.
    monkeypatch.chdir(tmp_path)
    nonsense = Path("nonsense.pem")
    nonsense.write_text("nonsense")
    with pytest.raises(InvalidField, match="absent"):
        ServerTls(Path("absent.crt"), pair.key)
    with pytest.raises(InvalidField, match="other"):
        ServerTls(pair.certificate, other.key)
    with pytest.raises(InvalidField, match="nonsense"):
        ServerTls(pair.certificate, pair.key, nonsense)
    with pytest.raises(InvalidField, match="its key"):
        ClientTls(authority.file, pair.certificate)


async def test_a_probe_asks_as_another_service_would(authority: Authority) -> None:
    pair = authority.issue("server")
    tls = ServerTls(pair.certificate, pair.key, authority.file)
    async with serving(tls) as address:
        variables = {
            "FASTVIDEO_LISTEN": f"0.0.0.0:{address.rpartition(':')[2]}",
            "FASTVIDEO_TLS_CERT": str(pair.certificate),
            "FASTVIDEO_TLS_KEY": str(pair.key),
            "FASTVIDEO_TLS_CLIENT_CA": str(authority.file),
        }
        assert "closed" in await asyncio.to_thread(probe, variables)
        variables["FASTVIDEO_TLS_CA"] = str(authority.file)
        assert await asyncio.to_thread(probe, variables) == ""
