"""The version of this program."""

from functools import cache
from importlib.metadata import PackageNotFoundError, version

DISTRIBUTION = "fastvideo-v2"
"""The package that an installation brings."""


@cache
def program_version() -> str:
    """The version that is installed; "unknown" in a tree that is not."""
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
