"""Which component and layer of a step differ first."""

from collections.abc import Sequence
from dataclasses import replace

from fastvideo.engine.layers import decode_layers
from fastvideo.errors import FastVideoError
from fastvideo.recompute.host import Host
from fastvideo.replay.types import Comparison, LoggedStep
from fastvideo.scheduling.traces import ComponentsTraced, ComponentTrace

HOW_TO_GET_LAYERS = (
    "the log has no layers of this run; generate it again with outputs.trace = detail "
    "(`--trace detail`) to have component and layer named"
)


def name_difference(
    host: Host,
    comparison: Comparison,
    logged: ComponentsTraced | None,
    found: ComponentsTraced | None,
) -> Comparison:
    """The comparison of a step that differs, with its first differing component and layer."""
    if logged is None:
        return replace(comparison, detail=comparison.detail or HOW_TO_GET_LAYERS)
    if found is None:
        return replace(comparison, detail="the replay could not trace this step")
    then, why = _layers(host, logged, local=False)
    now, _ = _layers(host, found, local=True)
    first = first_difference(then, now)
    if first is None:
        what = "no output of a component differs; what the loop makes of them does"
        return replace(comparison, detail=why or what)
    return replace(
        comparison,
        component=first.component,
        layer=first.layer,
        detail=why or f"first of {len(then)} outputs, in order of execution",
    )


def compare_layers(
    host: Host, step: LoggedStep, found: ComponentsTraced | None
) -> Comparison | None:
    """All layers of a step that both sides have; None where the log has none."""
    if step.components is None or found is None:
        return None
    then, why = _layers(host, step.components, local=False)
    now, _ = _layers(host, found, local=True)
    first = first_difference(then, now)
    return Comparison(
        subject=f"{step.node_id} {step.step_range.stop}/{step.step_range.total} layers",
        equal=first is None,
        expected=first.digest if first is not None else "",
        found=_digest_of(first, now) if first is not None else "",
        node_id=step.node_id,
        step=step.step_range.stop,
        component=first.component if first is not None else "",
        layer=first.layer if first is not None else "",
        detail=why or f"{differing(then, now)} of {len(then)} outputs differ",
    )


def first_difference(
    then: Sequence[ComponentTrace], now: Sequence[ComponentTrace]
) -> ComponentTrace | None:
    """The first, in order of execution, whose output differs.

    One that only one side ran says nothing: what is prepared once, or was found in a cache, is
    not run at every step.
    """
    digests = {(trace.component, trace.layer): trace.digest for trace in now}
    for trace in then:
        other = digests.get((trace.component, trace.layer))
        if other is not None and other != trace.digest:
            return trace
    return None


def differing(then: Sequence[ComponentTrace], now: Sequence[ComponentTrace]) -> int:
    """How many outputs differ of those that both sides ran."""
    digests = {(trace.component, trace.layer): trace.digest for trace in now}
    return sum(
        digests.get((trace.component, trace.layer), trace.digest) != trace.digest for trace in then
    )


def _digest_of(wanted: ComponentTrace, traces: Sequence[ComponentTrace]) -> str:
    key = (wanted.component, wanted.layer)
    return next(trace.digest for trace in traces if (trace.component, trace.layer) == key)


def _layers(
    host: Host, traced: ComponentsTraced, *, local: bool
) -> tuple[Sequence[ComponentTrace], str]:
    """The layers of a step, or its components and why there are no layers."""
    digest = traced.layers_digest
    if not digest:
        return traced.components, "the step has components alone"
    try:
        data = host.blobs.get_blob(digest, 0) if local else host.sources.blob(digest)
        return decode_layers(data), ""
    except FastVideoError as error:
        return traced.components, f"the layers cannot be read: {error.message}"
