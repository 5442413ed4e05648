"""What `fastvideo log archive` and `erase` are told of the log that they go to."""

import pytest
from typer.testing import CliRunner

from fastvideo.cli import log_retention
from fastvideo.cli.main import build
from fastvideo.events.open_log import LogConfig
from fastvideo.events.sealing.erasing import Erased

DSN = "postgresql://127.0.0.1:1/log"
ARCHIVE = "s3://archives/log"
ENDPOINT = "http://127.0.0.1:9000"
PLACES = ["--postgres-url", DSN, "--archive-url", ARCHIVE]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[LogConfig]:
    """The configurations that the commands go to a database with; none is there."""
    configs: list[LogConfig] = []

    async def archived(config: LogConfig, *_: object) -> list[object]:
        configs.append(config)
        return []

    async def erased(config: LogConfig, *_: object, force: bool, artifacts: bool) -> Erased:
        configs.append(config)
        return Erased("t", (), repeated=True)

    monkeypatch.setattr(log_retention, "_archive", archived)
    monkeypatch.setattr(log_retention, "_erase", erased)
    return configs


@pytest.mark.parametrize("endpoint", [ENDPOINT, ""])
@pytest.mark.parametrize(
    "command",
    [["archive", "--before", "9"], ["erase", "--tenant", "t", "--reason", "asked", "--yes"]],
)
def test_archives_are_where_the_environment_says(
    command: list[str], endpoint: str, told: list[LogConfig]
) -> None:
    done = CliRunner(env={"AWS_ENDPOINT_URL": endpoint}).invoke(build(), ["log", *command, *PLACES])
    assert done.exit_code == 0, done.output
    assert told == [LogConfig(DSN, ARCHIVE, endpoint)]
