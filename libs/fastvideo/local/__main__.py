"""The detached supervisor: `python -m fastvideo.local OPTIONS REPORT_FD`.

Tells its progress on the descriptor, one JSON object a line, until it is ready or has failed:
{"state": ...} after every change, {"error": ...} at the end of a start that did not work. Then
closes it and goes on alone.
"""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping

from fastvideo.errors import FastVideoError
from fastvideo.local.config import StackOptions, load_config
from fastvideo.local.errors import to_record
from fastvideo.local.stack import run_stack
from fastvideo.local.state import StackState, to_json


class Report:
    """The line to the command that waits for the start; that command may go away at any time."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd
        os.set_inheritable(fd, False)

    def progress(self, state: StackState) -> None:
        self._write(f'{{"state": {to_json(state)}}}')

    def ready(self, state: StackState) -> None:
        self.progress(state)
        self.close()

    def failed(self, error: FastVideoError) -> None:
        self._write(json.dumps({"error": to_record(error)}))
        self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _write(self, line: str) -> None:
        if self._fd is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(self._fd, f"{line}\n".encode())


def main(arguments: list[str], environment: Mapping[str, str]) -> int:
    options, report = StackOptions.from_json(arguments[0]), Report(int(arguments[1]))
    try:
        asyncio.run(run_stack(load_config(options, environment), report.progress, report.ready))
    except FastVideoError as error:
        report.failed(error)
        return 1
    finally:
        report.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
