import pytest
import torch
from diffusers import UniPCMultistepScheduler

from fastvideo.errors import FailedPrecondition
from fastvideo.loops.samplers import UniPC
from fastvideo.loops.suite import fingerprint

SHAPE = (1, 2, 3, 4, 4)


def scheduler() -> UniPCMultistepScheduler:
    return UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
    )


def noise(generator: torch.Generator) -> torch.Tensor:
    return torch.randn(SHAPE, generator=generator)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 20, 50, 1000])
@pytest.mark.parametrize("flow_shift", [1.0, 3.0, 5.5])
def test_unipc_steps_equal_the_upstream_scheduler(steps: int, flow_shift: float) -> None:
    sampler = UniPC(scheduler())
    upstream = UniPCMultistepScheduler.from_config(scheduler().config, flow_shift=flow_shift)
    upstream.set_timesteps(steps)
    upstream.set_begin_index(0)
    generator = torch.Generator().manual_seed(steps)
    schedule, state = sampler.schedule(steps, flow_shift), sampler.start()
    assert torch.equal(schedule.timesteps, upstream.timesteps)
    assert torch.equal(schedule.sigmas, upstream.sigmas)
    ours = theirs = noise(generator)
    for timestep in upstream.timesteps:
        velocity = noise(generator)
        state, ours = sampler.step(schedule, state, velocity, ours)
        theirs = upstream.step(velocity, timestep, theirs, return_dict=False)[0]
        assert torch.equal(ours, theirs)
    assert state.step_index == steps


def test_a_step_changes_nothing_that_it_is_given() -> None:
    sampler = UniPC(scheduler())
    schedule, state = sampler.schedule(4, 3.0), sampler.start()
    generator = torch.Generator().manual_seed(0)
    sample = noise(generator)
    for _ in range(3):
        velocity = noise(generator)
        kept = fingerprint((state, velocity, sample, schedule))
        after, stepped = sampler.step(schedule, state, velocity, sample)
        again = sampler.step(schedule, state, velocity, sample)[1]
        assert torch.equal(stepped, again)
        assert fingerprint((state, velocity, sample, schedule)) == kept
        state, sample = after, stepped


def test_two_requests_in_turns_do_not_mix() -> None:
    sampler = UniPC(scheduler())
    schedules = (sampler.schedule(3, 3.0), sampler.schedule(5, 1.0))

    def alone(index: int) -> torch.Tensor:
        state, sample = sampler.start(), torch.full(SHAPE, float(index))
        for _ in range(3):
            state, sample = sampler.step(schedules[index], state, sample * 0.5, sample)
        return sample

    states = [sampler.start(), sampler.start()]
    samples = [torch.full(SHAPE, 0.0), torch.full(SHAPE, 1.0)]
    for _ in range(3):
        for index in (0, 1):
            states[index], samples[index] = sampler.step(
                schedules[index], states[index], samples[index] * 0.5, samples[index]
            )
    assert torch.equal(samples[0], alone(0))
    assert torch.equal(samples[1], alone(1))


@pytest.mark.parametrize(
    "changes", [{"solver_order": 3}, {"solver_type": "bh1"}, {"prediction_type": "epsilon"}]
)
def test_a_scheduler_of_another_kind_is_refused_by_name(changes: dict[str, object]) -> None:
    other = UniPCMultistepScheduler.from_config(scheduler().config, **changes)
    with pytest.raises(FailedPrecondition, match=next(iter(changes))):
        UniPC(other)
