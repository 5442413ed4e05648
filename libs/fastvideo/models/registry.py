"""The families by name, each imported when a model of it is loaded."""

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

import torch

from fastvideo.deployment.catalog import is_project
from fastvideo.errors import ContractViolation, NotFound
from fastvideo.loops.contract import LoopKernel
from fastvideo.model.component_config import check_component_configs
from fastvideo.model.manifest import manifest_digest
from fastvideo.model.specs import ModelSpec
from fastvideo.models.loading import load_components, open_checkpoint
from fastvideo.models.resident import InstanceParts
from fastvideo.scheduling.work import UnitKind

FAMILIES: Final[Mapping[str, str]] = {"wan": "fastvideo.models.wan.program"}
"""Family name to the module that has its factory functions."""


_OF_NO_MODEL: Final = frozenset(
    {UnitKind.ARTIFACT_WRITE, UnitKind.TRANSFER_SEND, UnitKind.TRANSFER_RECV}
)
"""Kinds of units whose kernels belong to the worker."""


class Family(Protocol):
    """The factory of a family: a module with these functions."""

    def make_components(self, card: ModelSpec, loaded: Mapping[str, Any]) -> dict[str, Any]:
        """The card's components as its loops call them, of the upstream objects by id."""
        ...

    def make_kernels(self, card: ModelSpec) -> dict[str, LoopKernel[Any, Any]]:
        """The kernels of the card's loops by loop id."""
        ...

    def fingerprint(self, card: ModelSpec, components: Mapping[str, Any]) -> dict[str, str]:
        """Measured facts of this machine that can change the bits of a result."""
        ...


def family_modules(packages: Sequence[str]) -> dict[str, str]:
    """Families that do not ship, by name: a package has the family's name and its files.

    A project's folder has no code: its model is of a family that is installed.
    """
    names = [package for package in packages if not is_project(package)]
    return {package.rpartition(".")[2]: f"{package}.program" for package in names}


def load_family(card: ModelSpec, families: Mapping[str, str] = FAMILIES) -> Family:
    """The factory of a card's family.

    Raises NotFound naming the known families.
    """
    module = families.get(card.family)
    if module is None:
        known = ", ".join(sorted(families))
        raise NotFound(
            f"family is {card.family!r}; known families: {known}",
            reason="FAMILY_NOT_FOUND",
            subject="family",
        )
    family: Family = import_module(module)
    return family


def load_instance_parts(
    card: ModelSpec, checkpoint: Path, families: Mapping[str, str] = FAMILIES
) -> InstanceParts:
    """Verify a checkpoint and load the card's model from it.

    Raises CheckpointError naming the file, key or configuration value that is at fault,
    InvalidField for a class or policy of the card that no loader keeps, and ContractViolation
    for a component or loop of the card that the family does not have.
    """
    family = load_family(card, families)
    verified = open_checkpoint(checkpoint)
    check_component_configs(card, checkpoint)
    components = family.make_components(card, load_components(card.components, verified))
    kernels = family.make_kernels(card)
    _check_complete(card, components, kernels)
    return InstanceParts(
        components=components,
        kernels=kernels,
        weights_version=manifest_digest(verified.manifest),
        weights_bytes=_weights_bytes(components),
        precision="float32",
        fingerprint=family.fingerprint(card, components),
    )


def _check_complete(
    card: ModelSpec, components: Mapping[str, Any], kernels: Mapping[str, LoopKernel[Any, Any]]
) -> None:
    loops = {name for name, loop in card.loops.items() if loop.unit_kind not in _OF_NO_MODEL}
    missing = sorted(set(card.components) - set(components)) + sorted(loops - set(kernels))
    if missing:
        raise ContractViolation(
            f"family {card.family} does not have what {card.model_id} declares: "
            f"{', '.join(missing)}",
            subject=card.model_id,
        )


def _weights_bytes(components: Mapping[str, Any]) -> int:
    modules = [part for part in components.values() if isinstance(part, torch.nn.Module)]
    tensors = {
        id(tensor): tensor.nbytes
        for module in modules
        for tensor in (*module.parameters(), *module.buffers())
    }
    return sum(tensors.values())
