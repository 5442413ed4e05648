"""What the artifacts service reads from its environment."""

import pytest

from fastvideo.errors import InvalidField
from fastvideo.service.environment import Environment
from fastvideo.telemetry.config import TelemetryConfig
from fastvideo_artifacts.config import load_config

GIVEN = {
    "FASTVIDEO_LISTEN": "127.0.0.1:1",
    "FASTVIDEO_POSTGRES_DSN": "postgresql://app:secret@127.0.0.1/log",
    "FASTVIDEO_BLOBS_URL": "file:///blobs",
}


def test_what_is_left_out_has_a_default() -> None:
    config = load_config(Environment(GIVEN))
    assert (config.listen, config.blobs_url) == ("127.0.0.1:1", "file:///blobs")
    assert (config.nats_url, config.s3_endpoint, config.telemetry) == (
        "",
        "",
        TelemetryConfig(),
    )
    assert config.artifact_bytes_max == 4 << 30
    assert config.log_level == "INFO"


@pytest.mark.parametrize("name", list(GIVEN))
def test_what_is_required_is_named(name: str) -> None:
    with pytest.raises(InvalidField) as caught:
        load_config(Environment({key: value for key, value in GIVEN.items() if key != name}))
    assert caught.value.field == name


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "4GiB"])
def test_a_size_is_a_whole_number_of_bytes(text: str) -> None:
    with pytest.raises(InvalidField, match="FASTVIDEO_ARTIFACT_BYTES_MAX"):
        load_config(Environment(GIVEN | {"FASTVIDEO_ARTIFACT_BYTES_MAX": text}))


@pytest.mark.parametrize("place", ["file:///blobs", "file:///blobs/", "file:///blobs/plain"])
def test_archives_do_not_lie_where_the_sweeper_clears(place: str) -> None:
    with pytest.raises(InvalidField, match="FASTVIDEO_ARCHIVE_URL"):
        load_config(Environment(GIVEN | {"FASTVIDEO_ARCHIVE_URL": place}))
    elsewhere = Environment(GIVEN | {"FASTVIDEO_ARCHIVE_URL": "file:///blobs/archive"})
    assert load_config(elsewhere).archive_url == "file:///blobs/archive"


def test_passwords_do_not_show() -> None:
    assert "secret" not in repr(load_config(Environment(GIVEN)))
