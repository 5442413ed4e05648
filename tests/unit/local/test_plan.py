"""A plan is checked when it is made, and knows the order in which it ends."""

from pathlib import Path

import pytest

from fastvideo.errors import ContractViolation
from fastvideo.local.plan import ProcessSpec, StackPlan
from fastvideo.local.probes import Exits


def spec(name: str, group: str = "", needs: tuple[str, ...] = ()) -> ProcessSpec:
    return ProcessSpec(
        name=name,
        group=group or name,
        argv=("/bin/true",),
        environment={},
        cwd=Path("/"),
        ready=Exits(),
        needs=needs,
    )


def test_two_parts_of_one_name_are_refused() -> None:
    with pytest.raises(ContractViolation, match="two parts are named nats"):
        StackPlan((spec("nats"), spec("nats")))


def test_a_part_comes_after_what_it_needs() -> None:
    with pytest.raises(ContractViolation, match="gateway needs sessions"):
        StackPlan((spec("gateway", needs=("sessions",)), spec("sessions")))


def test_groups_end_in_reverse_order_each_together() -> None:
    plan = StackPlan(
        (
            spec("postgres", "servers"),
            spec("nats", "servers"),
            spec("scheduler-1", "scheduler"),
            spec("worker-1", "worker"),
            spec("worker-2", "worker"),
            spec("gateway"),
        )
    )

    assert plan.stop_order() == (
        ("gateway",),
        ("worker-1", "worker-2"),
        ("scheduler-1",),
        ("postgres", "nats"),
    )


def test_an_environment_is_not_shown() -> None:
    part = ProcessSpec("a", "a", ("/bin/true",), {"SECRET": "hidden"}, Path("/"), Exits())

    assert "hidden" not in repr(part)
