"""Where a master key comes from."""

from pathlib import Path

import pytest

from fastvideo.errors import InvalidField
from fastvideo.events.open_log import LogConfig, master_key_of
from fastvideo.events.sealing.keys import MasterKey

TEXT = "ab" * 32


def test_a_variable_goes_before_a_file_and_none_means_no_sealing(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("cd" * 32 + "\n")
    assert master_key_of(TEXT, file) == MasterKey(bytes.fromhex(TEXT))
    assert master_key_of("", file) == MasterKey(bytes.fromhex("cd" * 32))
    assert master_key_of("", None) is None


def test_a_file_that_cannot_be_read_is_named_and_no_key_is_made_up(tmp_path: Path) -> None:
    with pytest.raises(InvalidField, match="FASTVIDEO_MASTER_KEY_FILE"):
        master_key_of("", tmp_path / "absent")


def test_a_configuration_tells_no_secret() -> None:
    shown = repr(LogConfig("postgresql://u:secret@h/d", master_key=MasterKey.parse(TEXT)))
    assert "secret" not in shown
    assert TEXT not in shown
