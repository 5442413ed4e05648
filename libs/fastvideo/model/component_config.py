"""A checkpoint's component configurations against what the card says of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fastvideo.errors import CheckpointError
from fastvideo.model.specs import ComponentSpec, ModelSpec

_CONFIG_NAMES: Final = ("config.json", "scheduler_config.json")


def check_component_configs(card: ModelSpec, folder: Path) -> None:
    """Check each component's configuration file against its `config_schema`.

    Raises CheckpointError naming the component, the value and what the card says.
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
    for name, literal in component.config_schema.items():
        wanted = json.loads(literal)
        if name not in config:
            yield f"the configuration lacks {name}; the card says {literal}"
        elif config[name] != wanted:
            yield f"{name} is {json.dumps(config[name])}; the card says {literal}"


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
