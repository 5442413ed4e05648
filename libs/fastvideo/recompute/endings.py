"""What a run ended with, against what it ends with again: latents, files, scores."""

import torch

from fastvideo.errors import FastVideoError
from fastvideo.loops.divergence import max_abs_difference
from fastvideo.media.tensors import decode_tensors
from fastvideo.recompute.host import Host
from fastvideo.recompute.promise import FILES_DEPEND_ON, files_promised
from fastvideo.recompute.steps import Again
from fastvideo.replay.tally import Tally
from fastvideo.replay.types import Comparison, Promise

_LATENTS = "latents.safetensors"


def compare_endings(host: Host, again: Again, promise: Promise, tally: Tally) -> None:
    """Compare all that the log has of a completed run's results."""
    run = host.run
    others = False
    if run.latents_digest:
        latents = _latents(host, again)
        others = not latents.equal
        tally.add(latents)
    allowed = promise.tolerance
    found = {
        name: value for result in again.results.values() for name, value in result.scores.items()
    }
    for name, score in sorted(run.scores.items()):
        other = found.get(name)
        apart = None if other is None else abs(other - score)
        tally.add(
            Comparison(
                subject=f"score {name}",
                equal=apart is not None and apart <= allowed,
                expected=repr(score),
                found=repr(other),
                max_abs_difference=apart,
            )
        )
    promised = files_promised(run, host.fingerprint)
    for record in run.artifacts:
        made = again.artifacts.get(record.artifact_id)
        digest = made.digest if made is not None else ""
        if not promised and digest and digest != record.digest:
            # Equal values make another file there; what it is made of is compared above.
            continue
        tally.add(
            Comparison(
                subject=f"artifact {record.name}",
                equal=digest == record.digest,
                expected=record.digest,
                found=digest,
                node_id=record.producer.node_id,
                detail="" if promised else f"{' and '.join(FILES_DEPEND_ON)} may be others",
            ),
            # Other latents make another file; one that is missing is told by nothing else.
            told_by_results=others and bool(digest),
        )


def latents_apart(host: Host, again: Again) -> float | None:
    """How far the final latents are from the original ones; None where those were not kept."""
    stored = next((record for record in host.run.artifacts if record.name == _LATENTS), None)
    if stored is None or again.latents is None:
        return None
    try:
        kept = decode_tensors(host.sources.get(stored.artifact_id))["latents"]
    except FastVideoError:
        # It may have been deleted since: then only digests are left.
        return None
    now: torch.Tensor = again.latents
    return max_abs_difference(now.to(torch.float32).cpu(), kept)


def _latents(host: Host, again: Again) -> Comparison:
    expected = host.run.latents_digest
    digests = [result.digests.get("latents", "") for result in again.results.values()]
    found = next(filter(None, digests), "")
    if found == expected:
        return Comparison(subject="latents", equal=True, expected=expected, found=found)
    apart = latents_apart(host, again)
    return Comparison(
        subject="latents",
        equal=False,
        expected=expected,
        found=found,
        max_abs_difference=apart,
        detail="the original latents were not kept, so there are only digests to compare; "
        "a request with outputs.latents keeps them"
        if apart is None
        else "",
    )
