"""What the log is told when a worker's weights are others than it knew."""

from collections.abc import Iterable

from fastvideo.scheduling.events import WorkerAttached
from fastvideo.scheduling.known_weights import KnownWeights
from fastvideo.scheduling.traces import WeightsChanged
from fastvideo.scheduling.work import ModelState


def state(instance: str, weights: str, model: str = "m", **adapters: str) -> ModelState:
    return ModelState(
        model_instance_id=instance,
        model_id=model,
        card_digest=f"card-{model}",
        weights_version=weights,
        adapter_versions=adapters,
    )


def attached(*instances: ModelState, worker: str = "w1") -> WorkerAttached:
    return WorkerAttached(worker_id=worker, instances=instances)


def told(known: KnownWeights, event: WorkerAttached) -> list[tuple[str, str, str]]:
    """Instance, former and new version of each change; they are taken in."""
    changes = known.changes(event)
    for change in changes:
        assert change.worker_id == event.worker_id
        known.evolve(change)
    return [(c.model_instance_id, c.from_version, c.to_version) for c in changes]


def after(events: Iterable[WorkerAttached]) -> KnownWeights:
    known = KnownWeights()
    for event in events:
        told(known, event)
    return known


def test_an_instance_that_is_new_comes_from_nothing() -> None:
    known = KnownWeights()
    assert told(known, attached(state("i1", "1"))) == [("i1", "", "1")]


def test_the_same_again_is_no_change() -> None:
    known = after([attached(state("i1", "1", style="a"))])
    assert told(known, attached(state("i1", "1", style="a"))) == []


def test_other_weights_in_its_place_say_from_which() -> None:
    known = after([attached(state("i1", "1"))])
    assert told(known, attached(state("i2", "2"))) == [("i2", "1", "2")]
    assert told(known, attached(state("i2", "2"))) == []


def test_weights_that_changed_under_the_same_instance() -> None:
    known = after([attached(state("i1", "1"))])
    assert told(known, attached(state("i1", "2"))) == [("i1", "1", "2")]


def test_another_adapter_is_a_change_of_the_same_weights() -> None:
    known = after([attached(state("i1", "1", style="a"))])
    assert told(known, attached(state("i1", "1", style="b"))) == [("i1", "1", "1")]


def test_what_is_not_there_any_more_is_gone() -> None:
    known = after([attached(state("i1", "1"), state("j1", "1", model="n"))])
    assert told(known, attached(state("i1", "1"))) == [("j1", "1", "")]
    assert told(known, attached(state("i1", "1"))) == []


def test_workers_are_told_apart() -> None:
    known = after([attached(state("i1", "1"))])
    assert told(known, attached(state("k1", "2"), worker="w2")) == [("k1", "", "2")]
    assert told(known, attached(state("i1", "1"))) == []


def test_what_is_folded_from_the_log_knows_the_same() -> None:
    history = [
        attached(state("i1", "1"), state("j1", "1", model="n")),
        attached(state("i2", "2"), state("j1", "1", model="n", style="a")),
        attached(state("i2", "2"), worker="w2"),
    ]
    known, folded = KnownWeights(), KnownWeights()
    for event in history:
        for change in known.changes(event):
            known.evolve(change)
            folded.evolve(change)
    for event in history:
        assert known.changes(event) == folded.changes(event)
    assert known.changes(attached()) == (
        WeightsChanged(
            worker_id="w1",
            model_instance_id="i2",
            model_id="m",
            card_digest="card-m",
            from_version="2",
        ),
        WeightsChanged(
            worker_id="w1",
            model_instance_id="j1",
            model_id="n",
            card_digest="card-n",
            from_version="1",
            adapter_versions={"style": "a"},
        ),
    )
