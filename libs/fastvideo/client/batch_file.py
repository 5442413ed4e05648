"""The lines of a batch: what is asked, one JSON object a line.

{"id": "red", "prompt": "a red three moving left", "sampling": {"steps": 20, "seed": 7}}
"""

import dataclasses
import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fastvideo.errors import ContractViolation
from fastvideo.model.documents import InvalidDocument, parse
from fastvideo.model.embedded import EMBEDDED_MODEL_ID
from fastvideo.requests.types import OutputSpec, SamplingOverrides

ITEMS_MAX: Final = 100_000
ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class InvalidBatch(ContractViolation):
    """Lines of a batch are wrong; `faults` says which and why."""

    default_reason = "INVALID_BATCH"

    def __init__(self, source: str, faults: dict[str, str]) -> None:
        self.faults = dict(faults)
        lines = [f"{source}: {place}: {fault}" for place, fault in faults.items()]
        super().__init__("\n".join(lines), subject=f"{source}: {next(iter(faults))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchItem:
    """One generation of a batch."""

    # Names its files and its place in the manifest; the line's number when it is left out.
    id: str = ""
    prompt: str
    model: str = EMBEDDED_MODEL_ID
    negative_prompt: str | None = None
    # A file, relative to the batch's own.
    image: str = ""
    sampling: SamplingOverrides = field(default_factory=SamplingOverrides)
    outputs: OutputSpec = field(default_factory=lambda: OutputSpec(video=True))
    priority: int = 0

    @property
    def digest(self) -> str:
        """Of all that is asked; a line that changes is another request."""
        text = json.dumps(dataclasses.asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def read_batch(path: Path) -> tuple[BatchItem, ...]:
    """The items of a file of JSON lines; empty lines are passed over.

    Raises InvalidBatch with every faulty line, before anything is asked of anybody, and OSError
    for a file that cannot be read.
    """
    items: list[BatchItem] = []
    faults: dict[str, str] = {}
    seen: dict[str, int] = {}
    for number, line in _lines(path):
        try:
            item = _item(number, line, path)
        except InvalidDocument as error:
            key, fault = next(iter(error.problems.items()))
            faults[f"line {number}"] = f"{key}: {fault}" if key else fault
            continue
        if item.id in seen:
            faults[f"line {number}"] = f"id: {item.id!r} is that of line {seen[item.id]}, too"
        seen.setdefault(item.id, number)
        items.append(item)
        if len(items) > ITEMS_MAX:
            faults["file"] = f"has more than {ITEMS_MAX} lines"
            break
    if not items and not faults:
        faults["file"] = "has no line"
    if faults:
        raise InvalidBatch(path.name, faults)
    return tuple(items)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield number, line


def _item(number: int, line: str, path: Path) -> BatchItem:
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidDocument(path.name, {"": f"is not JSON: {error}"}) from error
    if not isinstance(data, dict):
        raise InvalidDocument(path.name, {"": "is no JSON object"})
    item = parse(BatchItem, data, path.name)
    if not item.id:
        item = dataclasses.replace(item, id=f"{number:06d}")
    if ID.fullmatch(item.id) is None:
        allowed = "letters, digits, '.', '_' and '-', at most 100, not '.' first"
        raise InvalidDocument(path.name, {"id": f"is {item.id!r}; allowed: {allowed}"})
    if item.image and not (path.parent / item.image).is_file():
        raise InvalidDocument(path.name, {"image": f"there is no file {item.image}"})
    return item
