"""What a worker probably has cached: remembered by what requests gave, learned from look-ups.

A key is made of a request's own inputs, so that it is known before anything runs: its session,
and each text under its model. A worker has a key once a request with it looked into the worker's
caches (a miss stores what was missing); it is forgotten when too many others were seen since.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from fastvideo.requests.types import RequestSpec, TextPart

# Workers of one key that are looked at, the latest first.
WORKERS_A_KEY_MAX: Final = 16


@dataclass(slots=True)
class Affinity:
    """Which workers have which keys, each the latest last."""

    keys: dict[str, dict[str, None]] = field(default_factory=dict)
    workers: dict[str, dict[str, None]] = field(default_factory=dict)

    def learn(self, worker_id: str, keys: Iterable[str], keys_max: int) -> None:
        """A worker has these keys now, and the oldest beyond `keys_max` no more."""
        known = self.keys.setdefault(worker_id, {})
        for key in keys:
            known.pop(key, None)
            known[key] = None
            having = self.workers.setdefault(key, {})
            having.pop(worker_id, None)
            having[worker_id] = None
        while len(known) > keys_max:
            self._drop(worker_id, next(iter(known)))

    def forget(self, worker_id: str) -> None:
        """A worker is gone, or began anew."""
        for key in list(self.keys.get(worker_id, ())):
            self._drop(worker_id, key)
        self.keys.pop(worker_id, None)

    def warm(self, keys: tuple[str, ...]) -> Mapping[str, float]:
        """The workers that have any of the keys, each with the share of them that it has."""
        shares: dict[str, float] = {}
        for key in keys:
            having = self.workers.get(key)
            if having:
                for worker_id in list(having)[-WORKERS_A_KEY_MAX:]:
                    shares[worker_id] = shares.get(worker_id, 0.0) + 1.0 / len(keys)
        return shares

    def _drop(self, worker_id: str, key: str) -> None:
        self.keys[worker_id].pop(key, None)
        having = self.workers[key]
        having.pop(worker_id, None)
        if not having:
            del self.workers[key]


def text_keys(spec: RequestSpec) -> tuple[str, ...]:
    """The keys of the texts whose features a request needs."""
    return tuple(
        dict.fromkeys(
            f"text/{spec.model_id}/{_digest(part.text)}"
            for part in spec.inputs
            if isinstance(part, TextPart)
        )
    )


def session_key(spec: RequestSpec) -> str:
    """The key of the request's session; empty when it has none."""
    return f"session/{spec.session_id}" if spec.session_id else ""


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
