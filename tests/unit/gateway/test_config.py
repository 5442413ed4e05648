"""What the environment says."""

from pathlib import Path

import pytest

from fastvideo.errors import InvalidField
from fastvideo.service.environment import Environment
from fastvideo_gateway.config import load_config

REQUIRED = {
    "FASTVIDEO_LISTEN": "127.0.0.1:0",
    "FASTVIDEO_POSTGRES_DSN": "postgresql://app:secret@db/fastvideo",
    "FASTVIDEO_ARTIFACTS_ADDRESS": "a:1",
    "FASTVIDEO_SESSIONS_ADDRESS": "s:1",
}


def test_all_variables_are_read() -> None:
    config = load_config(
        Environment(
            {
                **REQUIRED,
                "FASTVIDEO_HTTP_LISTEN": "127.0.0.1:8080",
                "FASTVIDEO_MODELS": "moving-digits, other",
                "FASTVIDEO_CHECKPOINTS": "/models",
                "FASTVIDEO_LOG_LEVEL": "debug",
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4317",
            }
        )
    )
    assert config.models == ("moving-digits", "other")
    assert config.checkpoints == Path("/models")
    assert (config.http_listen, config.log_level) == ("127.0.0.1:8080", "DEBUG")
    assert config.telemetry.otlp_endpoint == "http://collector:4317"


def test_what_is_left_out_takes_its_default() -> None:
    config = load_config(Environment(REQUIRED))
    assert (config.models, config.checkpoints, config.http_listen) == (None, None, "")


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_an_absent_variable_is_named(name: str) -> None:
    with pytest.raises(InvalidField, match=name):
        load_config(Environment({**REQUIRED, name: ""}))


def test_an_address_without_a_port_is_refused() -> None:
    with pytest.raises(InvalidField, match="FASTVIDEO_HTTP_LISTEN"):
        load_config(Environment({**REQUIRED, "FASTVIDEO_HTTP_LISTEN": "localhost"}))


def test_no_secret_is_shown() -> None:
    assert "secret" not in repr(load_config(Environment(REQUIRED)))
