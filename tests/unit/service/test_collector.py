"""What a service has imported is not looked at by collections while it serves."""

import subprocess
import sys
from typing import Final

SERVED: Final = """
import asyncio, gc, os, signal
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from fastvideo.rpc.tls import TlsConfig
from fastvideo.service.run import run_service
from fastvideo.telemetry.config import TelemetryConfig

@dataclass
class Config:
    service_id: str = "one"
    log_level: str = "INFO"
    tls: TlsConfig = field(default_factory=TlsConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)

@dataclass
class Running:
    address: str = "nowhere"
    task: object = None

@asynccontextmanager
async def serving(config):
    before = gc.get_freeze_count()
    asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)
    yield Running()
    print(before, gc.get_freeze_count(), len(gc.get_objects()))

run_service("example", lambda environment: Config(), serving)
"""


def test_a_service_sets_apart_what_it_has_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVED], capture_output=True, text=True, timeout=60, check=True
    )
    before, apart, looked_at = map(int, done.stdout.splitlines()[-1].split())
    assert before == 0
    assert apart > 10 * looked_at
