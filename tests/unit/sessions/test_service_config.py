"""What the session service's environment says."""

import pytest

from fastvideo.errors import InvalidField
from fastvideo.service.environment import Environment
from fastvideo_sessions.config import load_config

REQUIRED = {
    "FASTVIDEO_LISTEN": "127.0.0.1:0",
    "FASTVIDEO_POSTGRES_DSN": "postgresql://app:secret@db/fastvideo",
}


def test_defaults_and_given_values() -> None:
    config = load_config(Environment(REQUIRED))
    assert (config.inactivity_timeout_s, config.prompt_memory_limit) == (1800, 20)
    config = load_config(
        Environment(
            {**REQUIRED, "FASTVIDEO_SESSION_TIMEOUT_S": "60", "FASTVIDEO_SESSION_PROMPTS": "5"}
        )
    )
    assert (config.inactivity_timeout_s, config.prompt_memory_limit) == (60, 5)
    assert "secret" not in repr(config)


@pytest.mark.parametrize("value", ["0", "-1", "soon"])
def test_a_timeout_that_is_none_is_refused(value: str) -> None:
    with pytest.raises(InvalidField, match="FASTVIDEO_SESSION_TIMEOUT_S"):
        load_config(Environment({**REQUIRED, "FASTVIDEO_SESSION_TIMEOUT_S": value}))


@pytest.mark.parametrize("name", sorted(REQUIRED))
def test_an_absent_variable_is_named(name: str) -> None:
    with pytest.raises(InvalidField, match=name):
        load_config(Environment({**REQUIRED, name: ""}))
