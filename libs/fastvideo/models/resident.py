"""What a kernel sees of the model that is resident on its worker."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastvideo.loops.contract import LoopKernel
from fastvideo.model.specs import ModelSpec


class ResidentModel(Protocol):
    """A loaded model: components that its loops share, and what names its bits."""

    @property
    def model_instance_id(self) -> str:
        """The resident instance."""
        ...

    @property
    def card(self) -> ModelSpec:
        """The card that it was loaded by."""
        ...

    @property
    def components(self) -> Mapping[str, Any]:
        """Loaded components by id."""
        ...

    @property
    def weights_version(self) -> str:
        """Digest of the checkpoint's manifest."""
        ...

    @property
    def adapter_versions(self) -> Mapping[str, str]:
        """Versions of the adapters that are on, by name."""
        ...

    @property
    def precision(self) -> str:
        """Compute dtype, such as "float32"."""
        ...

    @property
    def parallel_plan_hash(self) -> str:
        """Digest of the parallel plan; empty for one device."""
        ...

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """Facts of the machine that can change bits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceParts:
    """What a family loads for one resident instance."""

    components: Mapping[str, Any]
    kernels: Mapping[str, LoopKernel[Any, Any]]
    # Digest of the checkpoint's manifest.
    weights_version: str
    # Bytes of the resident parameters and buffers.
    weights_bytes: int
    precision: str
    # Facts of the machine that can change bits: versions, processor, measured invariance.
    fingerprint: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandaloneModel:
    """A model that one process holds by itself, for parity runs, scripts and tests."""

    card: ModelSpec
    parts: InstanceParts
    model_instance_id: str = "standalone"
    adapter_versions: Mapping[str, str] = field(default_factory=dict)
    parallel_plan_hash: str = ""

    @property
    def components(self) -> Mapping[str, Any]:
        """Loaded components by id."""
        return self.parts.components

    @property
    def kernels(self) -> Mapping[str, LoopKernel[Any, Any]]:
        """The kernels of the loops by id."""
        return self.parts.kernels

    @property
    def weights_version(self) -> str:
        """Digest of the checkpoint's manifest."""
        return self.parts.weights_version

    @property
    def precision(self) -> str:
        """Compute dtype."""
        return self.parts.precision

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """Facts of the machine that can change bits."""
        return self.parts.fingerprint
