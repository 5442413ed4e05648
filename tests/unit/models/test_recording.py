import copy

import pytest
import torch
from torch import nn

from fastvideo.models.recording import Recorded, stop_recordings


class Small(nn.Module):
    """Two layers, whose calls are counted: a replay makes none."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 16)
        self.second = nn.Linear(16, 16)
        self.calls = 0

    def forward(self, rows: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        wide = torch.nn.functional.gelu(self.first(rows)) * 3 + shift
        output: torch.Tensor = self.second(wide.unflatten(1, (2, -1)).flatten(1))
        return output


class Drawn(Small):
    """Gives other numbers each time."""

    def forward(self, rows: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return super().forward(rows, shift) + torch.rand(())


class FixedAtTwo(Small):
    """Reads a size as a number: what is recorded of two rows holds for two rows."""

    def forward(self, rows: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return super().forward(rows, shift) * float(len(rows))


def rows(count: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 16, generator=generator), torch.randn(16, generator=generator)


def used(recorded: Recorded, module: Small, count: int = 4, seed: int = 0) -> bool:
    """Whether a call was a replay; its bits are the module's in any case."""
    given = rows(count, seed)
    wanted = module(*given)
    before = module.calls
    assert torch.equal(recorded(*given), wanted)
    return module.calls == before


def warm(recorded: Recorded, count: int = 4) -> None:
    for _ in range(2):
        recorded(*rows(count))


@torch.no_grad()
def test_a_form_that_is_met_again_is_replayed_with_the_same_bits() -> None:
    module = Small()
    recorded = Recorded(module, seconds_max=60.0)
    assert not used(recorded, module)
    warm(recorded)
    assert all(used(recorded, module, seed=seed) for seed in range(5))


@torch.no_grad()
def test_one_recording_serves_other_numbers_of_rows() -> None:
    module = Small()
    recorded = Recorded(module, seconds_max=60.0)
    for count in (4, 8, 12):
        warm(recorded, count)
        assert used(recorded, module, count, seed=1)
    assert len(recorded._recordings) == 1


@torch.no_grad()
def test_what_holds_for_one_size_alone_is_recorded_anew() -> None:
    module = FixedAtTwo()
    recorded = Recorded(module, seconds_max=60.0)
    for count in (4, 8):
        warm(recorded, count)
        assert used(recorded, module, count, seed=1)
    assert used(recorded, module, 4, seed=2)


@torch.no_grad()
def test_a_module_that_a_replay_does_not_equal_is_run_itself() -> None:
    module = Drawn()
    recorded = Recorded(module, seconds_max=60.0)
    warm(recorded)
    before = module.calls
    recorded(*rows(4))
    assert module.calls == before + 1


@torch.no_grad()
def test_what_takes_long_is_not_recorded() -> None:
    module = Small()
    recorded = Recorded(module, seconds_max=0.0)
    warm(recorded)
    assert not used(recorded, module)
    assert not recorded._recordings


@torch.no_grad()
@pytest.mark.parametrize("change", ["in place", "another parameter", "another part"])
def test_changed_weights_are_seen_at_once(change: str) -> None:
    module = Small()
    recorded = Recorded(module, seconds_max=60.0)
    warm(recorded)
    stamp = recorded.stamp
    assert recorded.stamp is stamp
    if change == "in place":
        module.first.weight.mul_(2)
    elif change == "another parameter":
        module.first.weight = nn.Parameter(torch.ones(16, 16))
    else:
        module.second = nn.Linear(16, 16)
    assert recorded.stamp is not stamp
    assert not used(recorded, module)
    warm(recorded)
    assert used(recorded, module)


@torch.no_grad()
def test_somebody_who_watches_a_part_sees_every_call() -> None:
    module = Small()
    recorded = Recorded(module, seconds_max=60.0)
    warm(recorded)
    seen: list[int] = []
    handle = module.second.register_forward_hook(lambda *_: seen.append(1))
    recorded(*rows(4))
    assert seen == [1]
    handle.remove()
    assert used(recorded, module)


def test_gradients_flow_through_the_module_itself() -> None:
    module = Small()
    recorded = Recorded(module, seconds_max=60.0)
    with torch.no_grad():
        warm(recorded)
    recorded(*rows(4)).sum().backward()
    assert module.first.weight.grad is not None


@torch.no_grad()
def test_a_copy_goes_its_own_way() -> None:
    module = Small()
    recorded = Recorded(module, seconds_max=60.0)
    warm(recorded)
    other = copy.deepcopy(recorded)
    module.first.weight.mul_(2)
    assert not torch.equal(other(*rows(4)), recorded(*rows(4)))


@torch.no_grad()
def test_what_becomes_of_recordings_is_told_once() -> None:
    module, drawn = Small(), Drawn()
    recorded, refused = Recorded(module, seconds_max=60.0), Recorded(drawn, seconds_max=60.0)
    warm(recorded)
    warm(recorded, 5)
    warm(refused)
    assert [(told.change, told.shapes) for told in recorded.take_changes()] == [
        ("captured", "4x16,16"),
        ("replayed", "5x16,16"),
    ]
    assert recorded.take_changes() == ()
    [told] = refused.take_changes()
    assert (told.change, told.reason) == ("refused", "no replay gives the same bits")
    module.first.weight.mul_(2)
    recorded(*rows(4))
    assert [told.change for told in recorded.take_changes()] == ["dropped"]


def test_a_component_whose_recordings_are_stopped_runs_as_it_is() -> None:
    recorded = Recorded(nn.Sequential(nn.Linear(4, 4), nn.SiLU()))
    component = nn.Module()
    component.forwards = recorded  # type: ignore[assignment]
    stop_recordings([component, object()])
    rows = torch.ones(2, 4)
    with torch.no_grad():
        outputs = [recorded(rows) for _ in range(4)]
    assert all(torch.equal(output, outputs[0]) for output in outputs)
    assert recorded.take_changes() == ()
