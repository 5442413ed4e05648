"""Snapshots that are refused, by name, and leave nothing behind."""

from dataclasses import replace
from typing import Any

import pytest

from fastvideo.engine.executor import ExecutorLimits
from fastvideo.engine.snapshotting import SnapshotGone
from fastvideo.errors import FastVideoError
from fastvideo.loops.snapshot_format import SnapshotMismatch
from fastvideo.scheduling.commands import (
    PrepareLoop,
    ReleaseLoops,
    SnapshotLoops,
)
from fastvideo.scheduling.events import LoopFailed
from fastvideo.scheduling.work import (
    LoopSnapshot,
)
from tests.unit.engine.snapshot_driving import (
    MakeCommand,
    MakeRequest,
    World,
    restored,
    run,
    snapshot,
)


def _refusal(world: World, command: PrepareLoop) -> FastVideoError:
    assert command.restore is not None
    try:
        saved = world.executor.fetch(command.restore)
    except FastVideoError as error:
        return error
    event = world.executor.prepare(command, saved)
    assert isinstance(event, LoopFailed)
    assert world.executor.loops == 0
    told = event.error
    return FastVideoError(told.message, reason=told.reason, subject=told.subject)


@pytest.mark.parametrize(
    ("change", "reason", "subject"),
    [
        ({"weights_version": "w2"}, "SNAPSHOT_MISMATCH", "weights_version"),
        ({"card_digest": "1" * 64}, "SNAPSHOT_MISMATCH", "card_digest"),
        ({"state_digest": "1" * 64}, "SNAPSHOT_MISMATCH", "state_digest"),
        ({"format": 2}, "SNAPSHOT_MISMATCH", "format"),
        ({"ended": True}, "SNAPSHOT_MISMATCH", "kind"),
        ({"digest": "1" * 64}, "SNAPSHOT_GONE", "1" * 64),
    ],
)
def test_a_snapshot_that_does_not_fit_is_refused_and_leaves_nothing(
    world: World,
    make_request: MakeRequest,
    make_command: MakeCommand,
    change: dict[str, Any],
    reason: str,
    subject: str,
) -> None:
    request = make_request("r")
    world.prepare(request)
    [saved] = snapshot(world, "r").snapshots
    command = replace(make_command(request, attempt=2), restore=replace(saved, **change))
    error = _refusal(world, command)
    assert (error.reason, error.subject) == (reason, subject)
    assert world.pools.in_use_bytes() == world.start_bytes
    assert len(run(world, restored(world, replace(command, restore=saved)))) == 3


def test_outputs_that_do_not_fit_are_refused_whole(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    request = make_request("r")
    world = make_world()
    run(world, world.prepare(request))
    [saved] = snapshot(world, "r").snapshots
    # Of three values the last does not fit.
    there = make_world(shelf=world.shelf, limits=ExecutorLimits(values_per_request=2))
    error = _refusal(there, replace(make_command(request, attempt=2), restore=saved))
    assert (error.reason, error.subject) == ("RESOURCE_EXHAUSTED", "values")
    there.executor.release(ReleaseLoops(request_id="r", attempt=2))
    assert there.pools.in_use_bytes() == there.start_bytes
    assert there.executor.snapshot(SnapshotLoops(request_id="r", attempt=2)).snapshots == ()


def test_a_snapshot_under_changed_weights_is_refused(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    request = make_request("r")
    world = make_world()
    world.prepare(request)
    [saved] = snapshot(world, "r").snapshots
    there = make_world(shelf=world.shelf)
    there.residents.find("mi_toy").weights_version = "w2"
    error = _refusal(there, replace(make_command(request, attempt=2), restore=saved))
    assert (error.reason, error.subject) == ("SNAPSHOT_MISMATCH", "weights_version")


def test_without_a_store_snapshots_are_unsupported(
    make_world: type[World], make_request: MakeRequest, make_command: MakeCommand
) -> None:
    world = make_world(shelf=None)
    with pytest.raises(FastVideoError) as caught:
        snapshot(world, "r")
    assert caught.value.reason == "SNAPSHOT_UNSUPPORTED"
    restore = LoopSnapshot(loop=make_command(make_request("r")).loop)
    event = world.executor.prepare(replace(make_command(make_request("r")), restore=restore))
    assert isinstance(event, LoopFailed)
    assert event.error.reason == "SNAPSHOT_UNSUPPORTED"


def test_the_two_errors_of_snapshots_are_preconditions_with_their_own_reasons() -> None:
    assert SnapshotGone("gone").reason == "SNAPSHOT_GONE"
    assert SnapshotMismatch("other").reason == "SNAPSHOT_MISMATCH"
