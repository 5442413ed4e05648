"""Samplers: one definition each, as pure steps over explicit state.

`unipc` is the deterministic one of the cards, `flow_sde` the one that samples and says how
likely its steps were. Both walk the same schedule of noise levels.
"""

from fastvideo.loops.samplers.flow_sde import FLOW_SDE, FlowSDE, FlowSDEState
from fastvideo.loops.samplers.schedule import FlowSchedule
from fastvideo.loops.samplers.unipc import UniPC, UniPCState

__all__ = ["FLOW_SDE", "FlowSDE", "FlowSDEState", "FlowSchedule", "UniPC", "UniPCState"]
