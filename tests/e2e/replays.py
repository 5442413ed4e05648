"""The processes that replays run in, seen from outside."""

from pathlib import Path


def replays_of(pid: int) -> list[int]:
    """The processes that a worker, or a command, runs replays in."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    return [child for path in children for child in _numbers(path) if is_replay(child)]


def is_replay(pid: int) -> bool:
    """Whether a process runs and is a replay's."""
    try:
        return b"fastvideo.recompute" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _numbers(path: Path) -> list[int]:
    try:
        return [int(number) for number in path.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
