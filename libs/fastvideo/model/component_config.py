"""A checkpoint's component configurations against what the card says of them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from fastvideo.errors import CheckpointError
from fastvideo.model.specs import ComponentSpec, ModelSpec

_CONFIG_NAMES: Final = (
    "config.json",
    "scheduler_config.json",
    "tokenizer_config.json",
    "preprocessor_config.json",
    "adapter_config.json",
)


def check_component_configs(card: ModelSpec, folder: Path) -> None:
    """Check each component's configuration file against its `config_schema`.

    What a file leaves out takes its class's default; `check_loaded_config` sees that when the
    component is loaded. Raises CheckpointError naming the component, the value and what the
    card says.
    """
    problems = [
        f"{component.component_id}: {fault}"
        for component in card.components.values()
        for fault in _problems(component, folder)
    ]
    if problems:
        raise CheckpointError(
            f"{folder} is no checkpoint of {card.model_id}: {'; '.join(problems)}",
            subject=problems[0].split(":")[0],
        )


def check_loaded_config(component: ComponentSpec, config: Mapping[str, Any]) -> None:
    """Check a loaded component's whole configuration, defaults and all.

    Raises CheckpointError naming the component, the value and what the card says.
    """
    missing = [name for name in component.config_schema if name not in config]
    problems = [f"the configuration lacks {name}" for name in missing]
    problems += _value_problems(component, config)
    if problems:
        raise CheckpointError(
            f"{component.component_id}: {'; '.join(problems)}", subject=component.component_id
        )


def config_sizes(component: ComponentSpec) -> dict[str, int]:
    """The whole numbers of a component's configuration, by name; tensor schemas refer to them."""
    values = {name: json.loads(literal) for name, literal in component.config_schema.items()}
    return {name: value for name, value in values.items() if type(value) is int}


def _problems(component: ComponentSpec, folder: Path) -> Iterator[str]:
    if not component.config_schema:
        return
    config = _read_config(folder / component.subfolder)
    if config is None:
        yield f"{component.subfolder}/ has no {' or '.join(_CONFIG_NAMES)}"
        return
    yield from _value_problems(component, config)


def _value_problems(component: ComponentSpec, config: Mapping[str, Any]) -> Iterator[str]:
    for name, literal in component.config_schema.items():
        # Tuples are lists in JSON.
        found = json.loads(json.dumps(config.get(name)))
        if name in config and found != json.loads(literal):
            yield f"{name} is {json.dumps(found)}; the card says {literal}"


def _read_config(folder: Path) -> dict[str, Any] | None:
    for name in _CONFIG_NAMES:
        path = folder / name
        if path.is_file():
            try:
                config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise CheckpointError(f"{path} is no JSON: {error}", subject=str(path)) from error
            return config
    return None
