"""The factory of the pocket family: components and kernels. Its programs are in programs.yaml."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from fastvideo.loops.contract import LoopKernel
from fastvideo.model.specs import LoopSpec, ModelSpec
from tests.families.pocket import components as parts
from tests.families.pocket.loops.captured import CapturedKernel
from tests.families.pocket.loops.denoise import DenoiseKernel
from tests.families.pocket.loops.encode import EncodeKernel
from tests.families.pocket.loops.recompute import RecomputeKernel
from tests.families.pocket.loops.rollout import RolloutKernel
from tests.families.pocket.loops.score import ScoreKernel
from tests.families.pocket.loops.tell import TellKernel
from tests.families.pocket.loops.transfer import ReceiveKernel, SendKernel
from tests.families.pocket.loops.voice import VoiceKernel

WINDOW_STEPS: Final = 4


def _windows(spec: LoopSpec) -> DenoiseKernel:
    return DenoiseKernel(spec, window=WINDOW_STEPS)


_KERNELS: Final[Mapping[str, Callable[[LoopSpec], LoopKernel[Any, Any]]]] = {
    "tell": TellKernel,
    "recompute": RecomputeKernel,
    "voice": VoiceKernel,
    "encode": EncodeKernel,
    "denoise": DenoiseKernel,
    "denoise_window": _windows,
    "denoise_captured": CapturedKernel,
    "rollout": RolloutKernel,
    "score": ScoreKernel,
    "send": SendKernel,
    "receive": ReceiveKernel,
}


def make_components(card: ModelSpec, loaded: Mapping[str, Any]) -> dict[str, Any]:
    """The card's components as its loops call them."""
    return parts.make_components(card, loaded)


def make_kernels(card: ModelSpec) -> dict[str, LoopKernel[Any, Any]]:
    """The kernels of the card's loops by loop id."""
    return {loop_id: make(card.loops[loop_id]) for loop_id, make in _KERNELS.items()}


def fingerprint(card: ModelSpec, components: Mapping[str, Any]) -> dict[str, str]:
    """Nothing beyond what the machine's own has."""
    return {}
