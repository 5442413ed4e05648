"""The worker's configuration: read once, refused by name."""

from pathlib import Path

import pytest

from fastvideo.errors import InvalidField
from fastvideo.service.environment import Environment
from fastvideo_worker.config import Config, load_config


def test_what_is_left_out_keeps_its_default() -> None:
    config = load_config(Environment({}))
    assert (config.models, config.threads, config.scheduler_addresses) == (
        ("moving-digits",),
        None,
        (),
    )


def test_everything_is_read() -> None:
    config = load_config(
        Environment(
            {
                "FASTVIDEO_SERVICE_ID": "worker-3",
                "FASTVIDEO_LISTEN": "127.0.0.1:9",
                "FASTVIDEO_SCHEDULER_ADDRESSES": "a:1, b:2",
                "FASTVIDEO_ARTIFACTS_ADDRESS": "c:3",
                "FASTVIDEO_MODELS": "x,y",
                "FASTVIDEO_CHECKPOINTS": "/models",
                "FASTVIDEO_FAMILIES": "mine.family, yours",
                "FASTVIDEO_REDIS_URL": "redis://somewhere",
                "FASTVIDEO_THREADS": "4",
                "FASTVIDEO_COMPUTE_SLOTS": "2",
                "OMP_NUM_THREADS": "1",
                "FASTVIDEO_ROLE_MEMORY": "decode/activations=0.5, write/staging=1",
                "FASTVIDEO_DRAIN_GRACE_S": "2.5",
                "FASTVIDEO_WATCH_FINITE": "off",
                "FASTVIDEO_LOG_LEVEL": "debug",
            }
        )
    )
    assert config == Config(
        service_id="worker-3",
        listen="127.0.0.1:9",
        scheduler_addresses=("a:1", "b:2"),
        artifacts_address="c:3",
        models=("x", "y"),
        checkpoints=Path("/models"),
        families=("mine.family", "yours"),
        redis_url="redis://somewhere",
        threads=4,
        compute_slots=2,
        role_memory={"decode/activations": 0.5, "write/staging": 1.0},
        drain_grace_s=2.5,
        watch_finite=False,
        log_level="DEBUG",
    )


def test_the_thread_count_of_openmp_is_obeyed_unless_ours_is_given() -> None:
    ours = {"OMP_NUM_THREADS": "2", "FASTVIDEO_THREADS": "auto"}
    assert load_config(Environment({"OMP_NUM_THREADS": "2"})).threads == 2
    assert load_config(Environment(ours)).threads is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FASTVIDEO_THREADS", "0"),
        ("FASTVIDEO_THREADS", "many"),
        ("FASTVIDEO_MEMORY_BYTES", "-1"),
        ("FASTVIDEO_ROLE_MEMORY", "decode/activations"),
        ("FASTVIDEO_ROLE_MEMORY", "decode/activations=half"),
        ("FASTVIDEO_DRAIN_GRACE_S", "nan"),
        ("FASTVIDEO_DRAIN_GRACE_S", "soon"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(InvalidField, match=name):
        load_config(Environment({name: value}))
