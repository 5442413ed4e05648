"""One definition of each sampler, and no serving loop in training."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HOME = "libs/fastvideo/loops/samplers/"
# It runs the upstream pipeline, to compare with: the other definition, on purpose.
REFERENCE = "parity.py"
KERNEL_METHODS = {"init_state", "plan_step", "run_step", "advance"}


def sampling(source: str) -> set[str]:
    """How a source samples by itself: it steps an upstream scheduler or sets its timesteps.

    An optimiser's `step()` takes no arguments; a scheduler's takes prediction, time and sample.
    """
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if node.func.attr == "set_timesteps":
                found.add("set_timesteps")
            upstream = any(keyword.arg == "return_dict" for keyword in node.keywords)
            if node.func.attr == "step" and upstream:
                found.add("step")
    return found


def definitions(source: str) -> set[str]:
    """Classes of a source that are samplers: they start a state and step with a schedule."""
    return {
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and any(
            isinstance(item, ast.FunctionDef)
            and item.name == "step"
            and "velocity" in {argument.arg for argument in item.args.args}
            for item in node.body
        )
    }


def kernels(source: str) -> set[str]:
    """Classes of a source that could be driven as a loop."""
    return {
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
        and {item.name for item in node.body if isinstance(item, ast.FunctionDef)} & KERNEL_METHODS
    }


def sources() -> Iterator[tuple[str, str]]:
    """Path and text of everything that ships but generated code."""
    for folder in ("libs", "services"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith("libs/fastvideo/api/"):
                yield name, path.read_text()


@pytest.mark.row("LAY-03")
def test_one_module_samples_and_training_has_no_loop_of_its_own() -> None:
    own = {name for name, text in sources() if sampling(text) and not name.endswith(REFERENCE)}
    assert own == {f"{HOME}unipc.py"}
    steps = {name for name, text in sources() if definitions(text)}
    assert steps == {f"{HOME}flow_sde.py", f"{HOME}unipc.py"}
    training = [kernels(text) for name, text in sources() if "/training/" in name]
    assert training
    assert set().union(*training) == set()


def test_a_second_sampler_or_a_forked_loop_would_be_found() -> None:
    assert sampling("scheduler.step(v, t, x, return_dict=False)") == {"step"}
    assert sampling("scheduler.set_timesteps(4)") == {"set_timesteps"}
    assert sampling("optimizer.step()") == set()
    assert definitions("class Euler:\n    def step(self, velocity, sample): ...") == {"Euler"}
    assert definitions("class Stepper:\n    def step(self, claims): ...") == set()
    assert kernels("class Rollout:\n    def run_step(self, batch): ...") == {"Rollout"}
