"""Where the command begins: Ctrl-C while its modules are still imported ends it as later on.

Imports take a second on a busy machine. An exception thrown into one of them shows a stack that
helps nobody, or is lost in a callback that swallows it, so the process ends right there.
"""

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Import the command line, run it, and exit with its code; 130 when interrupted meanwhile."""
    raises = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if raises:  # a shell that ignores it for what runs in its background is not overruled
        signal.signal(signal.SIGINT, _end)
    from fastvideo.cli.main import main as run

    if raises:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _end(_number: int, _frame: FrameType | None) -> None:
    if "--json" in sys.argv[1:]:
        told = '{"error": {"reason": "INTERRUPTED", "message": "interrupted"}}\n'
        os.write(sys.stdout.fileno(), told.encode())
    os.write(sys.stderr.fileno(), b"interrupted\n")
    os._exit(130)
