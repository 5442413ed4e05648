"""What a history folds to: the state of every request, session and artifact, as data.

    python tests/contract/histories/folds.py NAME

writes `<name>.folds.json`. States are written without what is unset, so that a field that is
added to them later changes nothing here.
"""

import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from google.protobuf.json_format import MessageToDict

from fastvideo import wire
from fastvideo.artifacts import state as artifacts
from fastvideo.events.catalog import event_of
from fastvideo.events.records import StoredEvent
from fastvideo.events.subscription import check_next
from fastvideo.events.types import Event
from fastvideo.requests import state as requests
from fastvideo.sessions import state as sessions

Evolve = Callable[[Any, Event], Any]

_FOLDS: dict[str, Evolve] = {
    "request-": requests.evolve,
    "session-": sessions.evolve,
    "artifact-": lambda state, event: artifacts.evolve(state, event.payload),  # type: ignore[arg-type]
}


def fold(events: Iterable[StoredEvent]) -> dict[str, Any]:
    """Stream to its folded state; every event is read, also those that nothing is folded of.

    Raises CorruptLog at a gap of offsets or versions, and what a fold raises.
    """
    states: dict[str, Any] = {}
    cursors: dict[int, int] = {}
    versions: dict[str, int] = {}
    for stored in events:
        check_next(stored, cursors.get(stored.partition, 0))
        cursors[stored.partition] = stored.offset
        assert stored.stream_version == versions.get(stored.stream_id, 0) + 1, stored.stream_id
        versions[stored.stream_id] = stored.stream_version
        event = event_of(stored)
        for prefix, evolve in _FOLDS.items():
            if stored.stream_id.startswith(prefix):
                states[stored.stream_id] = evolve(states.get(stored.stream_id), event)
    return {stream: _data(state) for stream, state in sorted(states.items())}


def _data(state: Any) -> Any:
    record = getattr(state, "record", state)  # An artifact's state has the record of its message.
    return MessageToDict(wire.to_proto(record), preserving_proto_field_name=True)


def main(name: str) -> None:
    from tests.contract.histories import files

    text = json.dumps(fold(files.read(name)), indent=1, sort_keys=True)
    (files.FOLDER / f"{name}.folds.json").write_text(text + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
    main(sys.argv[1])
