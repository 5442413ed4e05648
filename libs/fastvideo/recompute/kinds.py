"""The kinds of replay that need a model, each by the module that runs it."""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from fastvideo.errors import InvalidField
from fastvideo.recompute.host import Host, HostSetup
from fastvideo.recompute.sources import Sources
from fastvideo.replay.tally import Tell
from fastvideo.replay.types import (
    LoggedRun,
    ReplayKind,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)

_KINDS: Final[Mapping[ReplayKind, str]] = {
    ReplayKind.EXECUTION: "fastvideo.recompute.execution",
    ReplayKind.CACHE: "fastvideo.recompute.cache",
    ReplayKind.BEHAVIOR: "fastvideo.recompute.behavior",
}


def run_replay(
    request: ReplayRequest, run: LoggedRun, setup: HostSetup, sources: Sources, tell: Tell
) -> ReplayReport:
    """Load the run's model and run it again. Raises InvalidField for another kind."""
    module = _KINDS.get(request.kind)
    if module is None:
        raise InvalidField("kind", request.kind.value, " or ".join(_KINDS))
    tell(ReplayProgress(message=f"loading {run.spec.model_id}"))
    host = Host(run, setup, sources)
    report: ReplayReport = import_module(module).replay(request, run, host, tell)
    return report
