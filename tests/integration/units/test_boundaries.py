"""A cancel through the engine lands at a boundary that the loops declare."""

from collections.abc import Callable
from typing import Any

import pytest

from fastvideo.engine.engine import Engine
from fastvideo.errors import Cancelled
from fastvideo.scheduling.work import UnitKind
from tests.families.served import standing_still

Run = Callable[..., Any]


@pytest.mark.row("VAL-09")
def test_speech_that_has_begun_is_not_cut_off_and_tokens_are(engine: Engine, record: Run) -> None:
    asked = {"model": "pocket", "program": "recite", "prompt": "speak", "steps": 40, "seed": 1}
    # 40 tokens are 160 frames, 16 a chunk. An answer is cancelled at its next token.
    for kind, chunks in ((UnitKind.AR_TOKEN, 0), (UnitKind.AUDIO_CHUNK, 10)):
        before = engine.memory_bytes
        with record(engine) as log:
            handle = _cancelled_in(engine, kind, asked)
            with pytest.raises(Cancelled) as caught:
                handle.result(30.0)
        kinds = log.kinds(handle.request_id)
        assert kinds.count(UnitKind.AUDIO_CHUNK) == chunks
        boundary = caught.value.attributes["boundary"]
        if chunks:
            assert boundary == "after voice"
            assert kinds.count(UnitKind.AR_TOKEN) == 40
        else:
            assert boundary.startswith("tell ")
            assert kinds.count(UnitKind.AR_TOKEN) < 40
        assert engine.memory_bytes == before


def _cancelled_in(engine: Engine, kind: UnitKind, asked: dict[str, Any]) -> Any:
    """A request that is cancelled while a unit of the kind runs, the third of its loop."""
    loop_id = "tell" if kind is UnitKind.AR_TOKEN else "voice"
    instance = next(i for i in engine._residents.all() if i.card.model_id == "pocket")
    kernel: Any = instance.kernels[loop_id]
    run_step = kernel.run_step
    handles: list[Any] = []

    def watched(batch: Any, of: Any, context: Any) -> Any:
        if handles and any(unit.kind is kind and state.version == 2 for state, unit in batch):
            handles[0].cancel("enough")
        return run_step(batch, of, context)

    kernel.run_step = watched
    try:
        with standing_still(engine):
            handles.append(engine.submit(**asked))
        handles[0]._ended.exception(30.0)
    finally:
        kernel.run_step = run_step
    return handles[0]
