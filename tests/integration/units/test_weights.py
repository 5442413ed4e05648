"""A request that is pinned to weights runs on them, from its first unit to its last, or fails."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastvideo.engine.engine import Engine
from fastvideo.errors import StaleWeights
from fastvideo.scheduling.work import UnitKind
from tests.families.pocket.checkpoint import write_checkpoint

Run = Callable[..., Any]
MakeEngine = Callable[..., Engine]


def telling(**options: Any) -> dict[str, Any]:
    return {
        "model": "pocket",
        "program": "tell",
        "prompt": "a fox",
        "seed": 1,
        "steps": 8,
    } | options


def version_of(engine: Engine) -> str:
    [instance] = engine._residents.all()
    return instance.weights_version


@pytest.mark.row("VAL-08")
def test_a_pinned_request_runs_on_its_weights_and_is_refused_by_newer_ones(
    make_engine: MakeEngine, run_all: Run, tmp_path: Path
) -> None:
    old = make_engine()
    pin = version_of(old)
    [[result], _] = run_all(old, telling(required_weights_version=pin))
    assert result.request.required_weights_version == pin

    write_checkpoint(tmp_path / "pocket", seed=1)
    new = make_engine(checkpoints=tmp_path)
    assert version_of(new) != pin
    with pytest.raises(StaleWeights) as caught:
        run_all(new, telling(required_weights_version=pin))
    assert caught.value.reason == "STALE_WEIGHTS"
    assert caught.value.attributes == {"required": pin, "found": version_of(new)}
    # Who asks for no version, or for this one, is served.
    [results, _] = run_all(new, telling(), telling(required_weights_version=version_of(new)))
    assert len(results) == 2


@pytest.mark.row("VAL-08")
def test_weights_that_change_while_a_request_runs_fail_it_at_its_next_unit(
    make_engine: MakeEngine, record: Run
) -> None:
    engine = make_engine()
    [instance] = engine._residents.all()
    pin = instance.weights_version
    kernel: Any = instance.kernels["tell"]
    run_step = kernel.run_step
    reached = threading.Event()

    def swapped(batch: Any, of: Any, context: Any) -> Any:
        if any(state.version == 3 for state, _ in batch):
            # What a sync of weights does to a resident model.
            instance.weights_version = "newer"
            reached.set()
        return run_step(batch, of, context)

    kernel.run_step = swapped
    with record(engine) as log:
        handle = engine.submit(**telling(required_weights_version=pin))
        with pytest.raises(StaleWeights) as caught:
            handle.result(30.0)
    assert reached.is_set()
    assert caught.value.reason == "STALE_WEIGHTS"
    results = log.of(handle.request_id)
    assert [result.error is None for result in results] == [True] * (len(results) - 1) + [False]
    # The unit that ran when they changed had begun on the old ones; the next did not begin.
    assert results[-2].state_version == 4
    assert log.kinds(handle.request_id)[-1] is UnitKind.AR_TOKEN
    kernel.run_step = run_step
    assert engine.submit(**telling()).result(30.0)
