"""What a worker has imported is no part of what its garbage collector looks at."""

import os
import subprocess
import sys

import pytest

_START = """
import gc
import sys
from fastvideo_worker import __main__ as worker

async def measured(config):
    print("apart", gc.get_freeze_count())
    return 0

worker._measured = measured
sys.exit(worker.main())
"""


@pytest.mark.timeout(300)
def test_a_worker_sets_apart_what_it_has_imported() -> None:
    addresses = dict.fromkeys(
        ("FASTVIDEO_LISTEN", "FASTVIDEO_SCHEDULER_ADDRESSES", "FASTVIDEO_ARTIFACTS_ADDRESS"),
        "127.0.0.1:1",
    )
    ran = subprocess.run(
        [sys.executable, "-c", _START],
        env={**os.environ, **addresses, "FASTVIDEO_SERVICE_ID": "worker-1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=True,
    )
    (said,) = [line for line in ran.stdout.splitlines() if line.startswith("apart")]
    assert int(said.split()[1]) > 10_000
