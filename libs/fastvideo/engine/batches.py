"""What a batch must be before anything runs; each breach is named."""

from collections.abc import Sequence

from fastvideo.errors import ContractViolation, InvalidField, ResourceExhausted
from fastvideo.scheduling.commands import ExecuteBatch
from fastvideo.scheduling.work import WorkUnit


def check_command(command: ExecuteBatch, units_max: int) -> None:
    """Raise a typed error unless the command is one that a worker can carry out."""
    if not command.unit_ids:
        raise InvalidField("unit_ids", [], "one unit or more")
    if len(command.unit_ids) > units_max:
        raise ResourceExhausted(
            f"a batch of {len(command.unit_ids)} units; the most is {units_max}",
            subject="batch_units",
            attributes={"batch_units_max": str(units_max)},
        )
    if len(set(command.unit_ids)) < len(command.unit_ids):
        raise InvalidField("unit_ids", list(command.unit_ids), "each unit once")


def check_batch(command: ExecuteBatch, units: Sequence[WorkUnit]) -> None:
    """Raise ContractViolation unless the units may share one forward."""
    first = units[0]
    for unit in units:
        if unit.kind is not command.kind:
            raise ContractViolation(
                f"{unit.unit_id} is of kind {unit.kind}, the batch is {command.kind}",
                subject=command.batch_id,
            )
        if not may_share(first, unit):
            raise ContractViolation(
                f"{unit.unit_id} and {first.unit_id} may not share a batch",
                reason="BATCH_KEYS_DIFFER",
                subject=command.batch_id,
            )
        if 0 < unit.max_batch < len(units):
            raise ContractViolation(
                f"{unit.unit_id} shares a batch of at most {unit.max_batch}, not {len(units)}",
                subject=command.batch_id,
            )


def may_share(first: WorkUnit, other: WorkUnit) -> bool:
    """Whether two units may be in one forward, as far as they say themselves."""
    return (first.kind, first.batch_key, first.model_instance_id, first.loop_id) == (
        other.kind,
        other.batch_key,
        other.model_instance_id,
        other.loop_id,
    )
