"""The public surface of the library: names, methods and parameters that users build on.

Run as `python tests/unit/house/surface.py` it writes `surface.txt` anew; the difference is what
a change does to users.
"""

import importlib
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

FROZEN = Path(__file__).with_name("surface.txt")
# Of the first, names alone: it hands on what the others have, and some of it needs torch.
FACE = "fastvideo"
MODULES = ("fastvideo.client", "fastvideo.errors", "fastvideo.loops.contract")
WITH_TORCH = ("fastvideo.engine.engine", "fastvideo.engine.results", "fastvideo.loops.suite")


def has_torch() -> bool:
    """Whether the modules below the torch line can be looked at here."""
    return importlib.util.find_spec("torch") is not None


def lines() -> list[str]:
    """One line for each public name, method and field, sorted."""
    found = {f"{FACE}.{name}" for name in importlib.import_module(FACE).__all__}
    for name in (*MODULES, *(WITH_TORCH if has_torch() else ())):
        module = importlib.import_module(name)
        for public in _names(module):
            value = getattr(module, public)
            parameters = _parameters(value) if inspect.isfunction(value) else ""
            found.add(f"{name}.{public}{parameters}")
            for cls in _private_line(value, module):
                found |= {f"{name}.{public}.{member}" for member in _members(cls)}
    return sorted(found)


def _names(module: ModuleType) -> list[str]:
    declared = getattr(module, "__all__", None)
    if declared is not None:
        return list(declared)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
    ]


def _private_line(value: object, module: ModuleType) -> list[type]:
    """A class, and those of its package that it is made of and that have no name of their own."""
    if not inspect.isclass(value):
        return []
    public = _names(module)
    own = f"{module.__name__}."
    parts = [
        base
        for base in value.__mro__[1:]
        if base.__module__.startswith(own) and base.__name__ not in public
    ]
    return [value, *parts]


def _members(cls: type) -> Iterator[str]:
    for name, value in vars(cls).items():
        if name.startswith("_"):
            continue
        function = getattr(value, "__func__", value)
        if inspect.isfunction(function):
            yield f"{name}{_parameters(function)}"
        elif isinstance(value, property):
            yield name
    for name in vars(cls).get("__annotations__", {}):
        if not name.startswith("_"):
            yield name


def _parameters(function: object) -> str:
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    shown = []
    for parameter in parameters:
        if parameter.name in {"self", "cls"}:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        prefix: dict[object, str] = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        default = "" if parameter.default is parameter.empty else "="
        shown.append(f"{prefix.get(parameter.kind, '')}{parameter.name}{default}")
    return f"({', '.join(shown)})"


if __name__ == "__main__":
    FROZEN.write_text("".join(f"{line}\n" for line in lines()))
