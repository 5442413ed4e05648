import math

import pytest
import torch
from diffusers import UniPCMultistepScheduler

from fastvideo.loops.samplers import FlowSchedule, FlowSDE, FlowSDEState, UniPC
from fastvideo.loops.samplers.flow_sde import noise_of
from fastvideo.loops.suite import fingerprint

SHAPE = (1, 2, 3, 4, 4)
SDE = FlowSDE()


def schedule(steps: int, flow_shift: float = 3.0) -> FlowSchedule:
    scheduler = UniPCMultistepScheduler(
        prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=flow_shift
    )
    return UniPC(scheduler).schedule(steps, flow_shift)


def tensors(count: int, shape: tuple[int, ...] = SHAPE) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(count)
    return [torch.randn(shape, generator=generator) for _ in range(count)]


def at(step: int, noise_level: float = 0.7) -> FlowSDEState:
    return FlowSDEState(step_index=step, noise_level=noise_level, seed=5, sample_index=0)


@pytest.mark.parametrize("steps", [1, 2, 7, 20])
@pytest.mark.parametrize("flow_shift", [1.0, 3.0])
def test_without_noise_a_step_is_eulers_bit_for_bit(steps: int, flow_shift: float) -> None:
    walked, state = schedule(steps, flow_shift), SDE.start(0.0, seed=1)
    (sample,) = tensors(1)
    euler = sample
    for index in range(steps):
        velocity = torch.sin(sample)
        assert noise_of(walked, state, sample) is None
        assert SDE.log_prob(walked, state, velocity, sample, sample) is None
        state, sample = SDE.step(walked, state, velocity, sample, None)
        euler = euler + (walked.sigmas[index + 1] - walked.sigmas[index]) * torch.sin(euler)
        assert torch.equal(sample, euler)
    assert state.step_index == steps


@pytest.mark.parametrize("step", [0, 1, 8, 18])
def test_a_step_and_its_likelihood_are_those_of_the_papers_formula(step: int) -> None:
    walked, state = schedule(20), at(step)
    velocity, sample, noise = tensors(3)
    _, stepped = SDE.step(walked, state, velocity, sample, noise)
    # As the public implementation writes it, in its order of operations.
    sigma, following = walked.sigmas[step], walked.sigmas[step + 1]
    dt = following - sigma
    deviation = torch.sqrt(sigma / (1 - torch.minimum(sigma, walked.sigmas[1]))) * 0.7
    mean = (
        sample * (1 + deviation**2 / (2 * sigma) * dt)
        + velocity * (1 + deviation**2 * (1 - sigma) / (2 * sigma)) * dt
    )
    std = deviation * torch.sqrt(-1 * dt)
    torch.testing.assert_close(stepped, mean + std * noise, rtol=1e-5, atol=1e-5)
    normal = torch.distributions.Normal(mean, std).log_prob(stepped).mean()
    found = SDE.log_prob(walked, state, velocity, sample, stepped)
    assert found is not None
    assert found.dtype == torch.float64
    assert float(found) == pytest.approx(float(normal), abs=1e-4)


def test_of_a_known_flow_mean_and_variance_are_those_of_the_ordinary_equation() -> None:
    """x_0 is normal, so the exact velocity of every time is known."""
    centre, spread, steps = 1.5, 0.5, 250
    walked = schedule(steps, 1.0)
    (start,) = tensors(1, (1, 1, 1, 200, 250))

    def velocity(x: torch.Tensor, t: float) -> torch.Tensor:
        variance = (1 - t) ** 2 * spread**2 + t**2
        off = x - (1 - t) * centre
        return (t / variance) * off - (centre + (1 - t) * spread**2 / variance * off)

    ends = {}
    for noise_level in (0.0, 0.7, 1.0):
        sample, state = start, SDE.start(noise_level, seed=9)
        for index in range(steps):
            moved = velocity(sample, float(walked.sigmas[index]))
            noise = noise_of(walked, state, sample)
            state, sample = SDE.step(walked, state, moved, sample, noise)
            assert math.isfinite(float(sample.abs().max()))
        ends[noise_level] = sample
    for noise_level, sample in ends.items():
        assert float(sample.mean()) == pytest.approx(centre, abs=0.01), noise_level
        assert float(sample.std()) == pytest.approx(spread, rel=0.03), noise_level
    # It is another path that leads there, not the same one.
    assert not torch.allclose(ends[0.0], ends[0.7], atol=0.1)


def test_noise_follows_from_seed_sample_and_step_alone() -> None:
    walked, like = schedule(20), torch.empty(SHAPE)
    wanted = noise_of(walked, at(3), like)
    assert wanted is not None
    noise_of(walked, at(4), like)
    torch.manual_seed(0)
    again = noise_of(schedule(20), at(3), torch.ones(SHAPE))
    assert again is not None
    assert torch.equal(wanted, again)
    others = (
        FlowSDEState(step_index=3, noise_level=0.7, seed=6, sample_index=0),
        FlowSDEState(step_index=3, noise_level=0.7, seed=5, sample_index=1),
        at(4),
        FlowSDEState(step_index=3, noise_level=0.7, seed=2**53 - 1, sample_index=0),
    )
    for other in others:
        found = noise_of(walked, other, like)
        assert found is not None
        assert not torch.equal(found, wanted)
    assert abs(float(wanted.mean())) < 0.5
    assert wanted.dtype == torch.float32


def test_the_last_step_adds_no_noise_and_has_no_likelihood() -> None:
    walked = schedule(4)
    velocity, sample = tensors(2)
    assert noise_of(walked, at(3), sample) is None
    assert SDE.log_prob(walked, at(3), velocity, sample, sample) is None
    assert noise_of(walked, at(2), sample) is not None


def test_a_step_changes_nothing_that_it_is_given() -> None:
    walked, state = schedule(4), at(1)
    velocity, sample, noise = tensors(3)
    kept = fingerprint((state, velocity, sample, noise, walked))
    _, stepped = SDE.step(walked, state, velocity, sample, noise)
    first = SDE.log_prob(walked, state, velocity, sample, stepped)
    assert SDE.log_prob(walked, state, velocity, sample, stepped) == first
    assert fingerprint((state, velocity, sample, noise, walked)) == kept


def test_gradients_of_a_likelihood_reach_the_policy() -> None:
    walked, state = schedule(4), at(1)
    velocity, sample, noise = tensors(3)
    velocity.requires_grad_()
    with torch.no_grad():
        _, stepped = SDE.step(walked, state, velocity, sample, noise)
    found = SDE.log_prob(walked, state, velocity, sample, stepped)
    assert found is not None
    found.backward()
    # The likelihood rises as the mean moves to where the noise went: against it, as dt < 0.
    assert velocity.grad is not None
    torch.testing.assert_close(torch.sign(velocity.grad), -torch.sign(noise), rtol=0.0, atol=0.0)


def test_frames_that_something_else_decides_on_are_no_part_of_the_likelihood() -> None:
    walked, state = schedule(4), at(1)
    velocity, sample, noise, other = tensors(4)
    _, stepped = SDE.step(walked, state, velocity, sample, noise)
    free = slice(1, None)
    wanted = SDE.log_prob(walked, state, velocity, sample, stepped, free)
    changed = stepped.clone()
    changed[:, :, 0] = other[:, :, 0]
    assert SDE.log_prob(walked, state, velocity, sample, changed, free) == wanted
    assert SDE.log_prob(walked, state, velocity, sample, changed) != wanted
    assert SDE.log_prob(walked, state, velocity, sample, stepped, slice(3, None)) == 0.0
