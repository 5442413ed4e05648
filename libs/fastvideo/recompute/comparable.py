"""Which states of a run and of the same run again must be equal, and which need not be.

States are alike but for two kinds of loops: one that goes another way when a cache has what it
needs, and one whose state names files that another version of a library writes otherwise. What
such a loop hands on is compared by the loops after it, and by the values that files are made of.
"""

from typing import Final

from fastvideo.model.caching import CacheLookup, CacheOutcome
from fastvideo.program.specs import NodeKind
from fastvideo.recompute.host import Host
from fastvideo.recompute.promise import files_promised
from fastvideo.replay.types import LoggedStep
from fastvideo.scheduling.work import StepResult, UnitKind

_CACHED: Final = frozenset({UnitKind.CACHE_LOAD, UnitKind.CACHE_SAVE})


def is_comparable(host: Host, step: LoggedStep, result: StepResult) -> bool:
    """Whether a step's state says something about the run."""
    if step.state_digest == result.state_digest:
        return True
    if is_cached(host, step.node_id):
        return _outcomes(step.cache_lookups) == _outcomes(result.cache_lookups)
    if _node_kind(host, step.node_id) is NodeKind.ARTIFACT:
        written = {record.artifact_id for record in host.run.artifacts}
        # A cancelled stream left no file; here nobody cancels it.
        cancelled = written and any(name not in written for name in result.artifact_ids)
        return files_promised(host.run, host.fingerprint) and not cancelled
    return True


def is_cached(host: Host, node_id: str) -> bool:
    """Whether a node's loop has units that depend on what a cache holds."""
    node = next((node for node in host.program.nodes if node.node_id == node_id), None)
    loop = host.entry.card.loops.get(node.loop_id) if node is not None else None
    if loop is None:
        return False
    return bool(_CACHED & {loop.unit_kind, *(phase.unit_kind for phase in loop.phases)})


def _node_kind(host: Host, node_id: str) -> NodeKind | None:
    return next((node.kind for node in host.program.nodes if node.node_id == node_id), None)


def _outcomes(lookups: tuple[CacheLookup, ...]) -> list[CacheOutcome]:
    return [found.outcome for found in lookups if found.outcome is not CacheOutcome.EVICT]
