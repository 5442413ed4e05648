"""Which requests an explanation may name: those of the same tenant."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_REQUEST_ID: Final = re.compile(r"\breq_\w+")


@dataclass(frozen=True, slots=True)
class Names:
    """The requests that may be named."""

    request_ids: frozenset[str]

    def split(self, request_ids: Iterable[str]) -> tuple[tuple[str, ...], int]:
        """Those that may be named, and how many may not."""
        all_ids = tuple(request_ids)
        named = tuple(id_ for id_ in all_ids if id_ in self.request_ids)
        return named, len(all_ids) - len(named)

    def clean(self, text: str) -> str:
        """A text of the scheduler's without the ids that may not be named."""

        def put(found: re.Match[str]) -> str:
            return found[0] if found[0] in self.request_ids else "another request"

        return _REQUEST_ID.sub(put, text)
