"""UniPC: the deterministic sampler.

It is the predictor-corrector of https://arxiv.org/abs/2302.04867 in its B2(h) form, of second
order, on data prediction, for flow matching (alpha = 1 - sigma). The arithmetic is that of
`diffusers.UniPCMultistepScheduler`, operation by operation, so that results are equal bit for
bit; what depends on the schedule alone is computed once a schedule.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import torch
from diffusers import UniPCMultistepScheduler

from fastvideo.errors import FailedPrecondition
from fastvideo.loops.samplers.schedule import FlowSchedule

_ORDER: Final = 2
_REQUIRED: Final = {
    "solver_order": _ORDER,
    "solver_type": "bh2",
    "prediction_type": "flow_prediction",
    "use_flow_sigmas": True,
    "predict_x0": True,
    "lower_order_final": True,
    "thresholding": False,
    "use_dynamic_shifting": False,
    "final_sigmas_type": "zero",
}
_SCHEDULES_MAX: Final = 64
_TERMS_MAX: Final = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class UniPCState:
    """What a step hands to the next: position, orders, and the history of predictions."""

    step_index: int = 0
    lower_order_nums: int = 0
    # Order of the last step; 0 before the first.
    this_order: int = 0
    # Denoised predictions, oldest first, at most two.
    model_outputs: tuple[torch.Tensor, ...] = ()
    # The corrected sample before the last predictor; None before the first step.
    last_sample: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Terms:
    """What one update takes from the schedule; every tensor has no dimension but `rhos`."""

    # Of the sample: sigma_t / sigma_s.
    sample: torch.Tensor
    # Of the last denoised prediction: alpha_t (e^-h - 1).
    denoised: torch.Tensor
    # Of the correction: alpha_t B(h).
    correction: torch.Tensor
    # (lambda_before - lambda_s) / h; None at order 1.
    rk: torch.Tensor | None
    # Weights of the differences, [order] for the corrector and [1] for the predictor.
    rhos: torch.Tensor


class UniPC:
    """UniPC multistep over flow matching's velocity."""

    name = "unipc_multistep"

    def __init__(self, scheduler: UniPCMultistepScheduler) -> None:
        config = scheduler.config
        for field, wanted in _REQUIRED.items():
            if config[field] != wanted:
                raise FailedPrecondition(
                    f"scheduler: {field} is {config[field]!r}; allowed: {wanted!r}",
                    subject="scheduler",
                )
        if config["disable_corrector"] or config["solver_p"] is not None:
            raise FailedPrecondition(
                "scheduler: disable_corrector and solver_p must be empty", subject="scheduler"
            )
        self._config = config
        self._schedule = lru_cache(maxsize=_SCHEDULES_MAX)(self._make_schedule)
        self._terms = lru_cache(maxsize=_TERMS_MAX)(self._make_terms)

    def schedule(self, steps: int, flow_shift: float) -> FlowSchedule:
        """The noise levels of a request."""
        return self._schedule(steps, flow_shift)

    def start(self) -> UniPCState:
        """The state before the first step."""
        return UniPCState()

    def step(
        self,
        schedule: FlowSchedule,
        state: UniPCState,
        velocity: torch.Tensor,
        sample: torch.Tensor,
    ) -> tuple[UniPCState, torch.Tensor]:
        """The state and the sample after one step; nothing that is passed in changes.

        `velocity` and `sample` are [B, C, T, H, W] float32.
        """
        index = state.step_index
        denoised = sample - schedule.sigmas[index] * velocity
        if state.last_sample is not None:
            terms = self._terms(schedule.steps, schedule.flow_shift, index - 1, state.this_order, 1)
            sample = _correct(terms, denoised, state.last_sample, state.model_outputs)
        history = (*state.model_outputs, denoised)[-_ORDER:]
        order = min(_ORDER, schedule.steps - index, state.lower_order_nums + 1)
        terms = self._terms(schedule.steps, schedule.flow_shift, index, order, 0)
        after = UniPCState(
            step_index=index + 1,
            lower_order_nums=min(_ORDER, state.lower_order_nums + 1),
            this_order=order,
            model_outputs=history,
            last_sample=sample,
        )
        return after, _predict(terms, sample, history)

    def _make_schedule(self, steps: int, flow_shift: float) -> FlowSchedule:
        scheduler = UniPCMultistepScheduler.from_config(self._config, flow_shift=flow_shift)
        scheduler.set_timesteps(steps)
        return FlowSchedule(
            steps=steps,
            flow_shift=flow_shift,
            sigmas=scheduler.sigmas,
            timesteps=scheduler.timesteps,
        )

    def _make_terms(
        self, steps: int, flow_shift: float, index: int, order: int, corrector: int
    ) -> _Terms:
        """The terms of the update from sigma `index` to the next; order 1 or 2."""
        sigmas = self._schedule(steps, flow_shift).sigmas
        sigma, sigma_next = sigmas[index], sigmas[index + 1]
        alpha_next = 1 - sigma_next
        lambda_here = _lambda(sigma)
        h = _lambda(sigma_next) - lambda_here
        # Data prediction integrates in -h.
        h_phi = torch.expm1(-h)
        b_h = torch.expm1(-h)
        rk = (_lambda(sigmas[index - 1]) - lambda_here) / h if order == _ORDER else None
        return _Terms(
            sample=sigma_next / sigma,
            denoised=alpha_next * h_phi,
            correction=alpha_next * b_h,
            rk=rk,
            rhos=_rhos_corrector(rk, -h, h_phi, b_h) if corrector else torch.ones(1) * 0.5,
        )


def _lambda(sigma: torch.Tensor) -> torch.Tensor:
    """Half of the log of the signal-to-noise ratio."""
    return torch.log(1 - sigma) - torch.log(sigma)


def _rhos_corrector(
    rk: torch.Tensor | None, hh: torch.Tensor, h_phi: torch.Tensor, b_h: torch.Tensor
) -> torch.Tensor:
    """The corrector's weights: 1/2 at order 1, the solution of R rho = b at order 2."""
    if rk is None:
        return torch.ones(1) * 0.5
    rks = torch.stack([rk, torch.ones(())])
    h_phi_k = h_phi / hh - 1
    factorial = 1
    rows, right = [], []
    for power in range(1, _ORDER + 1):
        rows.append(torch.pow(rks, power - 1))
        right.append(h_phi_k * factorial / b_h)
        factorial *= power + 1
        h_phi_k = h_phi_k / hh - 1 / factorial
    solved: torch.Tensor = torch.linalg.solve(torch.stack(rows), torch.stack(right))
    return solved


def _predict(
    terms: _Terms, sample: torch.Tensor, history: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    base = terms.sample * sample - terms.denoised * history[-1]
    return base - terms.correction * _difference(terms, terms.rhos, history)


def _correct(
    terms: _Terms,
    denoised: torch.Tensor,
    sample: torch.Tensor,
    history: tuple[torch.Tensor, ...],
) -> torch.Tensor:
    last = history[-1]
    base = terms.sample * sample - terms.denoised * last
    difference = _difference(terms, terms.rhos[:-1], history)
    return base - terms.correction * (difference + terms.rhos[-1] * (denoised - last))


def _difference(
    terms: _Terms, rhos: torch.Tensor, history: tuple[torch.Tensor, ...]
) -> torch.Tensor:
    """What the prediction before the last adds, at order 2."""
    if terms.rk is None:
        return torch.zeros(())
    before, last = history[-2:]
    differences = torch.stack([(before - last) / terms.rk], dim=1)
    added: torch.Tensor = torch.einsum("k,bkc...->bc...", rhos.to(before.device), differences)
    return added
