"""Nobody learns the ids of another tenant's requests."""

from fastvideo.explain.names import Names
from fastvideo.scheduling.events import PreemptRequest, YieldBatch
from tests.unit.explain.tale import (
    ME,
    OTHER,
    THIRD,
    Tale,
    assign,
    dispatch,
    executed,
    plan,
    ref,
    result,
)

MINE = ref()


def test_names_are_split_into_those_that_may_be_told_and_a_number() -> None:
    assert Names(frozenset({ME, OTHER})).split([OTHER, THIRD, ME]) == ((OTHER, ME), 1)


def test_a_reason_loses_the_ids_that_may_not_be_told() -> None:
    names = Names(frozenset({OTHER}))
    assert names.clean("req_other and req_01abc wait") == "req_other and another request wait"


def test_an_explanation_counts_the_requests_of_others() -> None:
    tale = Tale()
    tale.decides(0.0, dispatch("1-0", (ref(THIRD), 0)))
    tale.begins()
    tale.hears(0.5, executed("1-0", result(ref(THIRD), 0, 0.5), seconds=0.5))
    tale.decides(0.5, dispatch("1-1", (MINE, 0), (ref(OTHER), 0), (ref(THIRD), 1), window=4))
    tale.decides(0.6, YieldBatch(batch_id="1-1", worker_id="w1", reason="req_third is urgent"))
    results = [result(ref(id_), step, 1.0) for id_, step in ((OTHER, 0), (THIRD, 1))]
    mine = result(MINE, 0, 1.0, then=plan(MINE, 1))
    tale.hears(1.5, executed("1-1", mine, *results, seconds=1.0))
    tale.decides(
        1.5,
        PreemptRequest(request_id=ME, attempt=1, worker_id="w1", reason="req_third has priority 9"),
    )
    tale.decides(2.5, assign(worker="w2"))
    told = tale.explained(names=(ME, OTHER))
    assert THIRD not in repr(told)
    assert (told.units[0].shared_with, told.units[0].shared_with_others) == ((OTHER,), 1)
    (stage, _) = told.stages
    assert ([mate.request_id for mate in stage.mates], stage.mate_count) == ([OTHER], 2)
    behind = {batch.batch_id: batch for batch in told.batches}["1-0"]
    assert (behind.request_ids, behind.requests_of_others) == ((), 1)
    assert told.attempts[0].end == "preempted: another request has priority 9"
