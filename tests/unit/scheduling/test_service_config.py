"""The scheduler service's configuration."""

import pytest

from fastvideo.errors import InvalidField
from fastvideo.model.documents import InvalidDocument
from fastvideo.service.environment import Environment
from fastvideo_scheduler.config import load_config

LEAST = {"FASTVIDEO_LISTEN": "127.0.0.1:1", "FASTVIDEO_POSTGRES_DSN": "postgresql://u:pw@h/db"}


def test_what_is_left_out_takes_its_default():
    config = load_config(Environment(LEAST))
    assert (config.shard, config.service_id, config.models) == ("0", "scheduler", None)
    assert config.lease_ttl_s == 1.5


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
        ("FASTVIDEO_LEASE_TTL_S", "121"),
        ("FASTVIDEO_WORKER_TIMEOUT_S", "0"),
        ("FASTVIDEO_ATTEMPTS_MAX", "inf"),
    ],
)
def test_a_wrong_variable_is_named(name, value):
    with pytest.raises(InvalidField) as refused:
        load_config(Environment(LEAST | {name: value}))
    assert refused.value.field == name


def test_a_policy_file_is_read_and_variables_go_before_it(tmp_path):
    path = tmp_path / "scheduling.yaml"
    path.write_text("resident_requests_max: 5\nattempts_max: 9\ntenant_weights: {a: 2}\n")
    variables = LEAST | {"FASTVIDEO_SCHEDULING_POLICY": str(path), "FASTVIDEO_ATTEMPTS_MAX": "2"}
    config = load_config(Environment(variables))
    assert config.policy.tenant_weights == {"a": 2}
    assert (config.resident_requests_max, config.attempts_max) == (5, 2)


def test_a_policy_file_with_an_unknown_knob_is_refused_by_name(tmp_path):
    path = tmp_path / "scheduling.yaml"
    path.write_text("residents: 5\n")
    with pytest.raises(InvalidDocument, match=r"scheduling.yaml: residents: unknown field"):
        load_config(Environment(LEAST | {"FASTVIDEO_SCHEDULING_POLICY": str(path)}))
