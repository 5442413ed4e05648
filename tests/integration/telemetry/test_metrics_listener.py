"""A service's listener for scrapers: one path, bounded, and an error where it cannot be."""

import asyncio
import ssl
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from fastvideo.errors import Unavailable
from fastvideo.rpc.tls import ClientTls, ServerTls
from fastvideo.service import metrics_listener, metrics_server
from fastvideo.service.metrics_listener import measured
from fastvideo.telemetry import providers
from fastvideo.telemetry.config import TelemetryConfig
from fastvideo.telemetry.exposition import ScrapedMeterProvider
from tests.plugins.certificates import Authority
from tests.plugins.http import call

WAIT_S = 120.0
ANYWHERE = TelemetryConfig(metrics_listen="127.0.0.1:0")


@pytest.fixture(autouse=True)
def own_meter(monkeypatch: pytest.MonkeyPatch) -> None:
    """A meter of the test, since a process has one."""
    built = providers.build("test", scraped=True).meter_provider
    assert isinstance(built, ScrapedMeterProvider)
    monkeypatch.setattr("opentelemetry.metrics.get_meter", built.get_meter)
    monkeypatch.setattr(metrics_listener, "scraper_of_process", lambda: built.scraper)


@asynccontextmanager
async def connected(
    address: str,
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()


async def test_it_tells_what_runs_and_nothing_else() -> None:
    async with measured("worker", ANYWHERE) as address:
        told = await call(address, "/metrics", headers={"Accept": "text/plain"})
        assert told.status == 200
        assert b'fastvideo_build_info{fastvideo_service="worker"' in told.body
        opened = {"Accept": "application/openmetrics-text; version=1.0.0"}
        open_metrics = await call(address, "/metrics", headers=opened)
        assert open_metrics.headers["content-type"].startswith("application/openmetrics-text")
        assert open_metrics.body.endswith(b"# EOF\n")
        assert (await call(address, "/")).status == 404
        assert (await call(address, "/metrics", method="POST", body=b"x")).status == 404
    with pytest.raises(OSError, match=r"refused|111"):
        await call(address, "/metrics")


async def test_who_does_not_ask_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with measured("worker", ANYWHERE) as address:
        with monkeypatch.context() as impatient:
            impatient.setattr(metrics_server, "HEAD_S_MAX", 0.1)
            async with connected(address) as (reader, writer), asyncio.timeout(WAIT_S):
                writer.write(b"GET /metrics HTTP/1.1\r\nHost:")
                assert await reader.read() == b""
        assert (await call(address, "/metrics")).status == 200


async def test_an_address_that_another_has_is_named() -> None:
    async with measured("worker", ANYWHERE) as address:
        taken = TelemetryConfig(metrics_listen=address)
        with pytest.raises(Unavailable) as caught:
            async with measured("another", taken):
                pass
    assert caught.value.subject == address


async def test_under_tls_a_scraper_is_let_in_as_every_other_caller(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair, scraper = authority.issue("server"), authority.issue("prometheus")
    tls = ServerTls(pair.certificate, pair.key, authority.file)
    async with measured("worker", ANYWHERE, tls) as address:

        def scraped(client: ClientTls) -> bytes:
            url = f"https://{address}/metrics"
            with urllib.request.urlopen(url, timeout=WAIT_S, context=client.context()) as answer:
                return bytes(answer.read())

        let_in = ClientTls(authority.file, scraper.certificate, scraper.key)
        assert b"fastvideo_build_info" in await asyncio.to_thread(scraped, let_in)
        # Told in the handshake, or seen by what comes of it.
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.to_thread(scraped, ClientTls(authority.file))
        told = b""
        async with connected(address) as (reader, writer), asyncio.timeout(WAIT_S):
            writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with suppress(ConnectionError):
                told = await reader.read()
        assert b"fastvideo" not in told


async def test_without_an_address_nothing_listens() -> None:
    async with measured("worker", TelemetryConfig()) as address:
        assert address == ""
