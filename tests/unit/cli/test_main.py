"""The command line as a program: help, usage, and what it does not load."""

import subprocess
import sys

import pytest

COMMANDS = (
    "generate",
    "request",
    "models",
    "session",
    "up",
    "down",
    "status",
    "logs",
    "version",
)


def fastvideo(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from fastvideo.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        env={"PATH": "/usr/bin:/bin", "COLUMNS": "100"},
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


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert fastvideo("version").stdout.strip() == version("fastvideo-v2")


def test_the_command_line_and_the_client_load_no_torch() -> None:
    code = (
        "import sys, fastvideo, fastvideo.cli.main, fastvideo.cli.generation, "
        "fastvideo.cli.inspection; fastvideo.Client; "
        "print(sorted({'torch', 'diffusers', 'transformers', 'av'} & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert result.stdout.strip() == "[]"
