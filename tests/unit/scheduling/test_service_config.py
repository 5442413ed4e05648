"""The scheduler service's configuration."""

import pytest

from fastvideo.errors import InvalidField
from fastvideo.service import Environment
from fastvideo_scheduler.config import load_config

LEAST = {"FASTVIDEO_LISTEN": "127.0.0.1:1", "FASTVIDEO_POSTGRES_DSN": "postgresql://u:pw@h/db"}


def test_what_is_left_out_takes_its_default():
    config = load_config(Environment(LEAST))
    assert (config.shard, config.service_id, config.models) == ("0", "scheduler", None)
    assert config.lease_ttl_s == 3.0


def test_what_is_given_is_obeyed():
    config = load_config(
        Environment(LEAST | {"FASTVIDEO_MODELS": "a, b", "FASTVIDEO_RESIDENT_REQUESTS_MAX": "7"})
    )
    assert config.models == ("a", "b")
    assert config.resident_requests_max == 7


def test_the_password_is_not_shown():
    assert "pw" not in repr(load_config(Environment(LEAST)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FASTVIDEO_LISTEN", ""),
        ("FASTVIDEO_POSTGRES_DSN", ""),
        ("FASTVIDEO_LEASE_TTL_S", "soon"),
        ("FASTVIDEO_LEASE_TTL_S", "nan"),
        ("FASTVIDEO_WORKER_TIMEOUT_S", "0"),
        ("FASTVIDEO_ATTEMPTS_MAX", "inf"),
    ],
)
def test_a_wrong_variable_is_named(name, value):
    with pytest.raises(InvalidField) as refused:
        load_config(Environment(LEAST | {name: value}))
    assert refused.value.field == name
