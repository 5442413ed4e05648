"""Cache replay: was every hit legitimate?

The run's loops are run again with empty caches, so each key is derived anew by the family's own
functions from the request, the card and the weights, and each value is computed from scratch.
Every logged look is then compared: its digest with its own key, its key with the derived one,
and, for a sample, the value that was found or kept with the computed one.
"""

import hashlib
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Final

from fastvideo.cache.keys import key_digest
from fastvideo.model.caching import CacheKey, CacheOutcome
from fastvideo.recompute.host import Host
from fastvideo.recompute.promise import TOLERANCE, promise_of
from fastvideo.replay.tally import Tally, Tell
from fastvideo.replay.types import (
    Comparison,
    LoggedRun,
    Promise,
    ReplayProgress,
    ReplayReport,
    ReplayRequest,
)
from fastvideo.scheduling.traces import CacheAccess, CacheAccessed

UnitKey = tuple[str, str]
"""Node and position: the same for a unit of every attempt."""

_SCALE: Final = 1 << 32


@dataclass(slots=True)
class _Derived:
    """What the loops look for today, and what they find there from scratch."""

    # By unit, in the order of its looks.
    keys: dict[UnitKey, list[CacheKey]] = field(default_factory=dict)
    # By key digest.
    values: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def take(self, access: CacheAccess) -> None:
        """Take in a look of a loop that runs again."""
        if access.key is None:
            return
        digest = key_digest(access.key)
        if access.lookup.value_digest:
            self.values.setdefault(digest, access.lookup.value_digest)
        keys = self.keys.setdefault(_unit_key(access.unit_id), [])
        if access.key not in keys:
            keys.append(access.key)


def replay(request: ReplayRequest, run: LoggedRun, host: Host, tell: Tell) -> ReplayReport:
    """Derive every logged key again, compute a sample of the values again, and compare.

    Where bits are not promised values are not compared: only their digests were logged.
    """
    promise = promise_of(
        run,
        host.fingerprint,
        host.entry.card,
        card_digest=host.entry.card_digest,
        weights_version=host.weights_version,
    )
    looks = _looks(run)
    tally = Tally(tell, request)
    derived = _derive(host, looks, tell) if looks else _Derived()
    share = request.sample or 1.0
    compared_values = 0
    for number, access in enumerate(looks):
        subject = _subject(access, number)
        key = _compare_key(access, derived, subject, tally)
        sampled = promise.kind != TOLERANCE and _is_sampled(run.spec.request_id, number, share)
        if key is not None and sampled and access.lookup.value_digest:
            compared_values += _compare_value(access, key, derived, subject, tally)
    equal = not tally.differing
    return tally.report(
        promise=promise,
        equal=equal,
        headline=_headline(run, len(looks), compared_values, promise, tally),
        seconds=derived.seconds,
        original_seconds=run.original_seconds,
        original_traceparent=run.traceparent,
    )


def _looks(run: LoggedRun) -> list[CacheAccess]:
    """What the run's units looked for and kept; of older logs what their results tell."""
    if run.accesses:
        return [
            access
            for access in run.accesses
            if access.unit_id and access.lookup.outcome is not CacheOutcome.EVICT
        ]
    return [
        CacheAccess(unit_id=step.unit_id, request_id=run.spec.request_id, lookup=lookup)
        for step in run.steps
        for lookup in step.cache_lookups
        if lookup.outcome is not CacheOutcome.EVICT
    ]


def _derive(host: Host, looks: Iterable[CacheAccess], tell: Tell) -> _Derived:
    """Run the loops again up to the last node that looked for something."""
    wanted = {_unit_key(access.unit_id)[0] for access in looks}
    derived = _Derived()
    began_s = time.monotonic()
    for batch in host.batches(host.plain):
        for note in batch.notes:
            if isinstance(note, CacheAccessed):
                for access in note.accesses:
                    derived.take(access)
        for result in batch.results:
            tell(ReplayProgress(message=f"{result.loop.node_id} {result.state_version}"))
            if result.loop_result is not None:
                wanted.discard(result.loop.node_id)
        if not wanted:
            break
    derived.seconds = time.monotonic() - began_s
    return derived


def _compare_key(
    access: CacheAccess, derived: _Derived, subject: str, tally: Tally
) -> CacheKey | None:
    """The key that the unit looks for today, if the logged look is for it."""
    node_id, _ = _unit_key(access.unit_id)
    logged = access.lookup.key_digest
    own = key_digest(access.key) if access.key is not None else logged
    candidates = derived.keys.get(_unit_key(access.unit_id), [])
    match = next((key for key in candidates if key_digest(key) == logged), None)
    if match is not None and own == logged:
        tally.add(
            Comparison(
                subject=f"{subject} key",
                equal=True,
                expected=logged,
                found=logged,
                node_id=node_id,
                component=match.component_id,
            )
        )
        return match
    nearest = candidates[0] if candidates else None
    tally.add(
        Comparison(
            subject=f"{subject} key",
            expected=logged,
            found=key_digest(nearest) if nearest is not None else "",
            node_id=node_id,
            component=nearest.component_id if nearest is not None else "",
            detail=_difference(access, own, nearest),
        )
    )
    return None


def _difference(access: CacheAccess, own: str, derived: CacheKey | None) -> str:
    """In words, what is wrong with a logged look."""
    if derived is None:
        return "the loop looks for nothing there today"
    if access.key is None:
        return "the derived key has another digest; the log does not have the logged key"
    differing = [
        f"{item.name}: {getattr(access.key, item.name)!r} -> {getattr(derived, item.name)!r}"
        for item in fields(CacheKey)
        if _plain(getattr(access.key, item.name)) != _plain(getattr(derived, item.name))
    ]
    forged = f"the digest is not that of its key, which is {own}"
    parts = [forged] if own != access.lookup.key_digest else []
    if differing:
        parts.append("the key differs in " + "; ".join(differing))
    return "; ".join(parts)


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else value


def _compare_value(
    access: CacheAccess, key: CacheKey, derived: _Derived, subject: str, tally: Tally
) -> int:
    """Compare the value of a look with the computed one; how many were compared."""
    computed = derived.values.get(access.lookup.key_digest)
    if computed is None:
        # Nothing was kept of it here, as of a value that no cache has room for.
        return 0
    node_id, _ = _unit_key(access.unit_id)
    equal = computed == access.lookup.value_digest
    tally.add(
        Comparison(
            subject=f"{subject} value",
            equal=equal,
            expected=access.lookup.value_digest,
            found=computed,
            node_id=node_id,
            component=key.component_id,
            detail=""
            if equal
            else f"the {access.tier or 'worker'} tier had another value under this key than "
            f"{key.component_id} gives",
        )
    )
    return 1


def _is_sampled(request_id: str, number: int, share: float) -> bool:
    """Whether a look is in the sample; the same ones each time."""
    drawn = hashlib.sha256(f"{request_id}/{number}".encode()).digest()[:4]
    return int.from_bytes(drawn) < share * _SCALE


def _unit_key(unit_id: str) -> UnitKey:
    """Node and position of a unit id, REQUEST/NODE/ATTEMPT/POSITION."""
    parts = unit_id.rsplit("/", 3)
    return (parts[1], parts[3]) if len(parts) == 4 else (unit_id, "")


def _subject(access: CacheAccess, number: int) -> str:
    node_id, position = _unit_key(access.unit_id)
    return f"{node_id} {position} look {number} ({access.lookup.outcome})"


def _headline(run: LoggedRun, looks: int, values: int, promise: Promise, tally: Tally) -> str:
    name = run.spec.request_id
    if not looks:
        return f"{name} looked into no cache"
    first = tally.first
    if first is not None:
        return f"{name}: {first.subject} is not what it must be: {first.detail}"
    hits = f"{looks} looks have the keys of this request, {values} values are computed anew"
    if promise.kind == TOLERANCE:
        return f"{name}: {hits}; {promise.reason}, so values are not compared"
    return f"{name}: {hits} with the same bits"
