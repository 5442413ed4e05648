"""Execution replay: does a request give the same bits today, and where is the first difference?"""

from dataclasses import replace

from fastvideo.recompute.endings import compare_endings
from fastvideo.recompute.host import Host
from fastvideo.recompute.layers import compare_layers, name_difference
from fastvideo.recompute.promise import TOLERANCE, promise_of
from fastvideo.recompute.steps import Again, logged_steps, run_again, trace_step
from fastvideo.replay.tally import Tally, Tell
from fastvideo.replay.types import (
    Comparison,
    LoggedRun,
    Promise,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)
from fastvideo.requests.types import RequestStatus


def replay(request: ReplayRequest, run: LoggedRun, host: Host, tell: Tell) -> ReplayReport:
    """Run a logged run again on the loops that serve, and compare all that the log has of it.

    Every step's state is compared, then latents, scores and files. Where a step differs and the
    log has its layers, it is run once more with traced layers, and the first that differs is
    named.
    """
    promise = promise_of(
        run,
        host.fingerprint,
        host.entry.card,
        card_digest=host.entry.card_digest,
        weights_version=host.weights_version,
        tolerance=request.tolerance,
    )
    tally = Tally(tell, request)
    again = run_again(host, host.detailed if request.detail else host.plain, tally, tell)
    if run.status is RequestStatus.COMPLETED and again.error is None:
        compare_endings(host, again, promise, tally)
    if request.detail:
        _compare_layers(host, again, tally)
    if again.first is not None and tally.first is not None:
        tell(ReplayProgress(message=f"searching {tally.first.subject} for the layer"))
        tally.explain_first(_explained(host, tally.first, again))
    equal = again.error is None and (not tally.differing or _is_within(promise, tally))
    report = tally.report(
        promise=promise,
        equal=equal,
        headline=_headline(run, tally, promise, equal, again) + _about_layers(request, run),
        seconds=again.seconds,
        original_seconds=run.original_seconds,
        original_traceparent=run.traceparent,
    )
    return replace(report, subject_id=request.subject_id or run.spec.request_id)


def _compare_layers(host: Host, again: Again, tally: Tally) -> None:
    host.wait_layers()
    for key, step in logged_steps(host).items():
        compared = compare_layers(host, step, again.traces.get(key))
        if compared is not None:
            tally.add(compared, told_by_results=True)


def _explained(host: Host, first: Comparison, again: Again) -> Comparison:
    assert again.first is not None
    logged = logged_steps(host)[again.first].components
    found = again.traces.get(again.first)
    if found is None and logged is not None and first.found:
        found = trace_step(host, again.first)
    return name_difference(host, first, logged, found)


def _is_within(promise: Promise, tally: Tally) -> bool:
    """Whether the results are as near as is allowed where bits are not promised."""
    if promise.kind != TOLERANCE:
        return False
    return tally.all_within(promise.tolerance)


def _about_layers(request: ReplayRequest, run: LoggedRun) -> str:
    if not request.detail or any(step.components is not None for step in run.steps):
        return ""
    return "; the log has no layers of it to compare"


def _headline(run: LoggedRun, tally: Tally, promise: Promise, equal: bool, again: Again) -> str:
    if not tally.compared:
        return f"{run.spec.request_id} computed nothing that the log could be compared with"
    first = tally.first
    if first is None and again.error is not None:
        return f"{run.spec.request_id} fails today: {again.error.message}"
    if first is None:
        so_far = "" if run.status is RequestStatus.COMPLETED else ", as far as it came,"
        return f"{run.spec.request_id}{so_far} gives the same bits: {tally.compared} comparisons"
    where = ", ".join(filter(None, (first.subject, first.component, first.layer)))
    if equal:
        return (
            f"{run.spec.request_id} gives other bits from {where} on, within the tolerance of "
            f"{promise.tolerance:g}"
        )
    failed = f"; it fails: {again.error.message}" if again.error is not None else ""
    return f"{run.spec.request_id} diverges at {where}{failed}"
