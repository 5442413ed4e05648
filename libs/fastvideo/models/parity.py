"""What a model was compared with, rung by rung, and how far it was apart."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from fastvideo.loops.divergence import Divergence
from fastvideo.model.rungs import TapParity
from fastvideo.requests.types import SamplingParams
from fastvideo.scheduling.traces import ParityChecked


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentParity:
    """C0: one component against its upstream object."""

    component_id: str
    max_abs_difference: float
    # What the card allows.
    allowed: float
    # Those that both run alike, in order of execution; empty when they were not compared.
    layers: tuple[TapParity, ...] = ()

    @property
    def taps(self) -> tuple[TapParity, ...]:
        """The layers, then the component itself."""
        whole = TapParity(
            rung="C0",
            tap=self.component_id,
            max_abs_difference=self.max_abs_difference,
            tolerance=self.allowed,
        )
        return (*self.layers, whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryParity:
    """C1: one request against the upstream pipeline."""

    sampling: SamplingParams
    latents: Divergence
    # What the card allows.
    latents_allowed: float
    # Of the uint8 frames.
    frames_max_difference: float
    # What the card allows.
    frames_allowed: float
    forwards: int

    @property
    def taps(self) -> tuple[TapParity, TapParity]:
        """Latents and frames."""
        latents = TapParity(
            rung="C1",
            tap="latents",
            max_abs_difference=self.latents.max_abs_difference,
            tolerance=self.latents_allowed,
            first_step=self.latents.first_step,
        )
        frames = TapParity(
            rung="C1",
            tap="frames",
            max_abs_difference=self.frames_max_difference,
            tolerance=self.frames_allowed,
        )
        return latents, frames


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityReport:
    """What was compared, and how far it was apart."""

    model_id: str
    reference: str
    components: tuple[ComponentParity, ...]
    trajectories: tuple[TrajectoryParity, ...]
    # Rungs above one that failed.
    not_run: tuple[str, ...] = ()

    @property
    def max_abs_difference(self) -> float:
        """The largest difference of all."""
        parts = [part.max_abs_difference for part in self.components]
        latents = [run.latents.max_abs_difference for run in self.trajectories]
        return max([*parts, *latents], default=0.0)

    @property
    def taps(self) -> Iterator[TapParity]:
        """Everything that was compared, in order."""
        for part in self.components:
            yield from part.taps
        for run in self.trajectories:
            yield from run.taps

    @property
    def first_failure(self) -> TapParity | None:
        """The first tap that is too far."""
        return next((tap for tap in self.taps if not tap.passed), None)

    @property
    def passes(self) -> bool:
        """Whether all was run, and every tap is within what the card allows."""
        return not self.not_run and self.first_failure is None


def parity_checks(
    report: ParityReport, card_digest: str, fingerprint: Mapping[str, str]
) -> tuple[ParityChecked, ...]:
    """The report as results for the log: one a component and layer, two a trajectory."""

    def check(tap: TapParity, case: str = "") -> ParityChecked:
        return ParityChecked(
            model_id=report.model_id,
            card_digest=card_digest,
            rung=tap.rung,
            subject=f"{tap.tap}/{case}" if case else tap.tap,
            reference=report.reference,
            passed=tap.passed,
            max_abs_difference=tap.max_abs_difference,
            tolerance=tap.tolerance,
            first_step=tap.first_step,
            fingerprint=dict(fingerprint),
        )

    single = [check(tap) for part in report.components for tap in part.taps]
    whole = [check(tap, _case(run.sampling)) for run in report.trajectories for tap in run.taps]
    return (*single, *whole)


def _case(of: SamplingParams) -> str:
    return f"{of.width}x{of.height}x{of.num_frames}/{of.steps}/{of.guidance_scale:g}/{of.seed}"


def format_report(report: ParityReport) -> str:
    """The report as a table for people."""
    lines = [f"{report.model_id} against {report.reference}", "", "C0 component   max difference"]
    lines += [
        f"   {part.component_id:12} {part.max_abs_difference:g}" for part in report.components
    ]
    lines += [
        f"   {tap.tap} {tap.max_abs_difference:g}, {tap.tolerance:g} allowed"
        for part in report.components
        for tap in part.layers
        if not tap.passed
    ]
    if report.not_run:
        failed = report.first_failure
        what = failed.tap if failed is not None else "nothing"
        return "\n".join([*lines, "", f"{', '.join(report.not_run)} not run: {what} is too far"])
    lines += ["", "C1 size      frames steps guidance seed  latents  frames  first divergence"]
    for run in report.trajectories:
        sampling, latents = run.sampling, run.latents
        where = "none" if latents.first_step is None else f"step {latents.first_step}"
        lines.append(
            f"   {sampling.width}x{sampling.height:<6} {sampling.num_frames:6} {sampling.steps:5} "
            f"{sampling.guidance_scale:8g} {sampling.seed:4}  {latents.max_abs_difference:7g} "
            f"{run.frames_max_difference:7g}  {where}"
        )
    return "\n".join(lines)
