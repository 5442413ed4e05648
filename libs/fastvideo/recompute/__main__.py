"""The process that runs a logged run again.

    python -m fastvideo.recompute [--checkpoints DIR] [--family PACKAGE] [--artifacts HOST:PORT]

It reads one `worker.v1.ReplayRequest` from its standard input and writes
`replay.v1.ReplayResponse`s to its standard output, each as `fastvideo.replay.framing` has
them. It ends when its input ends, so that nobody who dies leaves it behind. The status is 0 after
a report, whatever that says; 1 after an error, which the last line of standard error has as JSON.
"""

import argparse
import json
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import BinaryIO, Final

from fastvideo import wire
from fastvideo.api.replay.v1 import replay_pb2
from fastvideo.api.worker.v1 import worker_pb2
from fastvideo.errors import FastVideoError, InvalidField
from fastvideo.recompute.host import HostSetup
from fastvideo.recompute.kinds import run_replay
from fastvideo.recompute.sources import ArtifactServiceSources, NoSources
from fastvideo.replay.framing import CutOff, frame, read_message
from fastvideo.replay.types import (
    Comparison,
    LoggedRun,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)
from fastvideo.requests.failures import error_detail
from fastvideo.rpc.tls import SYSTEM, ClientTls

_LEFT: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve one replay."""
    options = _parser().parse_args(arguments)
    # What libraries print must not come between the messages, and is of no use to anybody.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if options.nice:
        os.nice(options.nice)
    source = sys.stdin.buffer
    try:
        message = read_message(source)
        if message is None:
            raise CutOff("the pipe ended before a request")
        threading.Thread(target=_leave_at_end, args=(source.fileno(),), daemon=True).start()
        _replay(options, worker_pb2.ReplayRequest.FromString(message), output)
    except FastVideoError as error:
        told = {"kind": type(error).__name__, "detail": asdict(error_detail(error))}
        sys.stderr.write(json.dumps(told) + "\n")
        return 1
    return 0


def _replay(
    options: argparse.Namespace, request: worker_pb2.ReplayRequest, output: BinaryIO
) -> None:
    if not request.HasField("replay") or not request.HasField("run"):
        raise InvalidField("run", None, "what to compare, and the run to compare it with")

    def tell(message: ReplayProgress | Comparison | ReplayReport) -> None:
        response = replay_pb2.ReplayResponse()
        getattr(response, _FIELD[type(message)]).CopyFrom(wire.to_proto(message))
        output.write(frame(response.SerializeToString()))
        output.flush()

    setup = HostSetup(
        checkpoints=options.checkpoints, families=options.family, threads=options.threads
    )
    asked = wire.from_proto(ReplayRequest, request.replay)
    run = wire.from_proto(LoggedRun, request.run)
    if not options.artifacts:
        tell(run_replay(asked, run, setup, NoSources(), tell))
        return
    api_key = os.environ.get(API_KEY, "")
    with ArtifactServiceSources(options.artifacts, _tls(options), api_key) as sources:
        tell(run_replay(asked, run, setup, sources, tell))


def _tls(options: argparse.Namespace) -> ClientTls | None:
    if options.tls_ca is None:
        return None
    ca = None if options.tls_ca == Path(SYSTEM) else options.tls_ca
    return ClientTls(ca, options.tls_cert, options.tls_key, options.tls_peer_name)


API_KEY: Final = "FASTVIDEO_API_KEY"
"""The variable with what a gateway's door is shown: a command line is seen by everybody."""

_FIELD: Final = {ReplayProgress: "progress", Comparison: "comparison", ReplayReport: "report"}


def _leave_at_end(descriptor: int) -> None:
    """End the process with its input: whoever asked has gone."""
    # Past the buffered reader, whose lock must be free when the interpreter ends.
    while os.read(descriptor, 1024):
        pass
    os._exit(_LEFT)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fastvideo.recompute", description=__doc__)
    parser.add_argument("--checkpoints", type=Path, help="folder of checkpoints, one a model")
    parser.add_argument(
        "--family",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="import name of a package with a model family; may be given again",
    )
    parser.add_argument("--artifacts", default="", help="host:port of ArtifactService")
    parser.add_argument("--tls-ca", type=Path, help="CA of the service's certificate, or system")
    parser.add_argument("--tls-cert", type=Path, help="what is shown to it")
    parser.add_argument("--tls-key", type=Path)
    parser.add_argument("--tls-peer-name", default="", help="name that its certificate has")
    parser.add_argument(
        "--threads", type=int, help="threads of a forward; the run's own when left out"
    )
    parser.add_argument("--nice", type=int, default=0, help="how much others go first")
    return parser


if __name__ == "__main__":
    sys.exit(main())
