"""The operator's key of a stack that asks for keys: made once, in a file that its owner reads."""

from pathlib import Path

from fastvideo.local.folder import DataFolder
from fastvideo.local.state import write_private
from fastvideo.rpc.api_keys import ApiToken

KEY_ID = "local-operator"


def ensure_operator_key(path: Path) -> None:
    """Make the key (0600), unless it is there."""
    if not path.exists():
        write_private(path, f"{ApiToken.new(KEY_ID).text}\n")


def read_operator_key(data: Path) -> str:
    """The key of the stack in a folder; empty where there is none that we may read."""
    try:
        return DataFolder(data).operator_key.read_text().strip()
    except OSError:
        return ""
