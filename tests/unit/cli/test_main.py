"""The command line as a program: help, usage, and what it does not load."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

COMMANDS = (
    *("generate", "batch", "request", "session", "models"),
    *("validate", "describe", "schemas", "serve", "route"),
    *("trace", "explain", "replay", "log", "keys", "tenants"),
    *("up", "down", "status", "logs", "version"),
)


def fastvideo(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    code = "from fastvideo.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "100", **variables},
    )


@pytest.mark.row("API-06")
def test_help_names_every_command() -> None:
    result = fastvideo("--help")
    assert result.returncode == 0
    for command in COMMANDS:
        assert f" {command} " in result.stdout
    assert "Exit codes" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("generate",), "prompt"),
        (("generate", "hi", "--size", "3"), "--size"),
        (("generate", "hi", "--steps", "many"), "--steps"),
        (("generate", "hi", "--unknown", "1"), "--unknown"),
        (("request", "get", "x", "--gateway", "nowhere"), "--gateway"),
        (("nonsense",), "nonsense"),
    ],
)
def test_wrong_usage_exits_2_and_names_the_option(arguments: tuple[str, ...], named: str) -> None:
    result = fastvideo(*arguments)
    assert result.returncode == 2
    assert named in result.stderr
    assert "Traceback" not in result.stderr


def test_a_number_that_the_wire_cannot_carry_is_refused_by_name() -> None:
    result = fastvideo("generate", "hi", "--gateway", "127.0.0.1:9", "--seed", "9" * 20)
    assert result.returncode == 1
    assert result.stderr == (
        "error: sampling.seed is 99999999999999999999; allowed: a whole number of 64 bits\n"
    )


def test_a_variable_that_is_wrong_is_named_in_one_line() -> None:
    result = fastvideo("models", FASTVIDEO_TLS_CA="/nowhere/ca.pem")
    assert result.returncode == 1
    assert "FASTVIDEO_TLS_CA" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_interrupt_while_it_is_imported_ends_it_in_one_line() -> None:
    code = """
import os, signal, sys
import fastvideo.cli.entry

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "fastvideo.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
fastvideo.cli.entry.main()
"""
    result = subprocess.run(
        [sys.executable, "-c", code, "models", "--json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (result.returncode, result.stderr) == (130, "interrupted\n")
    assert json.loads(result.stdout)["error"]["reason"] == "INTERRUPTED"


def test_what_a_terminal_cannot_show_ends_no_command(tmp_path: Path) -> None:
    project = shutil.copytree(ROOT / "examples/moving-digits", tmp_path / "project")
    card = (project / "model.yaml").read_text("utf-8")
    (project / "model.yaml").write_text(card.replace("of its own", "für mich"), "utf-8")
    result = fastvideo("describe", str(project), PYTHONIOENCODING="ascii:strict")
    assert (result.returncode, result.stderr) == (0, "")
    assert "f?r mich" in result.stdout


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    for asked in ("version", "--version"):
        assert fastvideo(asked).stdout.strip() == version("fastvideo-v2")


def test_help_says_what_is_taken_where_an_option_is_left_out() -> None:
    told = " ".join(fastvideo("generate", "--help", COLUMNS="200").stdout.split())
    assert "default: REQUEST.mp4" in told
    assert "default: $FASTVIDEO_DATA" in told


def loaded(imports: str, names: set[str]) -> str:
    """Which modules of these names are there after such imports in a new process."""
    code = f"import sys; {imports}; print(sorted({names} & set(sys.modules)))"
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    ).stdout.strip()


def test_help_loads_nothing_that_only_commands_need() -> None:
    names = {"grpc", "google.protobuf", "prometheus_client", "fastvideo.events.catalog"}
    imports = "import fastvideo.cli.main; fastvideo.cli.main.build()"
    assert loaded(imports, {*names, "opentelemetry.sdk"}) == "[]"


def test_the_command_line_and_the_client_load_no_torch() -> None:
    imports = (
        "import fastvideo, fastvideo.cli.main, fastvideo.cli.generation, "
        "fastvideo.cli.inspection; fastvideo.Client"
    )
    assert loaded(imports, {"torch", "diffusers", "transformers", "av"}) == "[]"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-o", "{folder}/a", "--sheet", "{folder}/a"), "--sheet"),
        (("-o", "{folder}/a", "--latents", "{folder}/b/../a"), "--latents"),
        (("-o", "{folder}"), "--output"),
        (("-o", "/proc/a"), "--output"),
    ],
    ids=["same file", "same file by another path", "folder", "not to be written"],
)
def test_places_that_cannot_be_written_are_refused_before_anything_is_asked(
    tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    given = (option.format(folder=tmp_path) for option in options)
    result = fastvideo("generate", "a red three", "--gateway", "127.0.0.1:1", *given)
    assert result.returncode == 1
    assert said in result.stderr
    assert "connect" not in result.stderr
    assert not (tmp_path / "a").exists()


def test_a_refused_command_with_json_prints_json() -> None:
    result = fastvideo("request", "get", "req_1", "--gateway", "127.0.0.1:1", "--json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["error"]["reason"] == "UNAVAILABLE"
