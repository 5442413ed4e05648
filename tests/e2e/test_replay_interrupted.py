"""A replay of many steps that is interrupted: no process stays, and the code says so."""

import signal

import pytest

from tests.e2e.replays import is_replay, replays_of
from tests.e2e.stack import Stack, poll

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def long(stack: Stack) -> str:
    """A request whose replay takes longer than it takes to interrupt it."""
    made = stack.generate("a red three moving left", "--steps", "100", "--seed", "1")
    return str(made["id"])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("where", ["worker", "here"])
def test_an_interrupted_replay_exits_with_130_and_leaves_no_process(
    stack: Stack, long: str, where: str, number: signal.Signals
) -> None:
    options = ("--here",) if where == "here" else ()
    with stack.start("replay", "execution", long, *options) as asking:
        runner = asking.pid if where == "here" else stack.pid("worker-1")
        [replay] = poll("a replay runs", lambda: replays_of(runner) or None, 60.0)
        asking.send_signal(number)
        _, told = asking.communicate(timeout=60)
    assert asking.returncode == 130
    assert "Traceback" not in told
    poll("the replay is gone", lambda: True if not is_replay(replay) else None, 60.0)


def test_a_killed_command_takes_its_replay_along(stack: Stack, long: str) -> None:
    with stack.start("replay", "execution", long, "--here") as asking:
        [replay] = poll("a replay runs", lambda: replays_of(asking.pid) or None, 60.0)
        asking.kill()
        asking.communicate(timeout=60)
    poll("the replay is gone", lambda: True if not is_replay(replay) else None, 60.0)
