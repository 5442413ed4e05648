"""What servers and services are started with."""

from dataclasses import replace
from pathlib import Path

import pytest

from fastvideo.local.config import StackConfig, StackOptions, load_config
from fastvideo.local.credentials import Credentials
from fastvideo.local.folder import DataFolder
from fastvideo.local.plan import ProcessSpec
from fastvideo.local.programs import PostgresPrograms
from fastvideo.local.servers import nats_url, postgres_dsn, postgres_parts, redis_url
from fastvideo.local.services import ServerUrls, service_names, service_parts

URLS = ServerUrls(
    "postgresql://app:pw@127.0.0.1:1/db", "nats://u:pw@127.0.0.1:2", "redis://:pw@h:3"
)
DATA = Path("/data/fastvideo")


def parts_of(config: StackConfig) -> dict[str, ProcessSpec]:
    names = service_names(config.options.workers, config.options.schedulers)
    ports = {name: 20_000 + i for i, name in enumerate((*names, "gateway-http"))}
    return {part.name: part for part in service_parts(config, ports, URLS, ("schema",))}


@pytest.fixture
def config() -> StackConfig:
    return load_config(StackOptions(DATA, workers=2, schedulers=2), {"PATH": "/bin"})


def test_services_come_in_dependency_order(config: StackConfig) -> None:
    assert list(parts_of(config)) == [
        "artifacts",
        "sessions",
        "scheduler-1",
        "scheduler-2",
        "worker-1",
        "worker-2",
        "gateway",
    ]


def test_every_service_gets_the_whole_contract(config: StackConfig) -> None:
    for name, part in parts_of(config).items():
        given = part.environment

        assert given["FASTVIDEO_SERVICE_ID"] == name
        assert given["FASTVIDEO_LISTEN"] == part.address
        if not name.startswith("worker-"):
            assert given["FASTVIDEO_POSTGRES_DSN"] == URLS.postgres_dsn
        assert given["FASTVIDEO_NATS_URL"] == URLS.nats_url
        assert given["FASTVIDEO_REDIS_URL"] == URLS.redis_url
        assert given["FASTVIDEO_PARTITIONS"] == "1"
        assert given["FASTVIDEO_ARTIFACTS_ADDRESS"] == "127.0.0.1:20000"
        assert given["FASTVIDEO_SESSIONS_ADDRESS"] == "127.0.0.1:20001"
        assert given["FASTVIDEO_SCHEDULER_ADDRESSES"] == "127.0.0.1:20002,127.0.0.1:20003"
        assert given["FASTVIDEO_BLOBS_URL"] == "file:///data/fastvideo/blobs"
        assert given["FASTVIDEO_MODELS"] == "moving-digits"
        assert given["FASTVIDEO_CHECKPOINTS"] == "/data/fastvideo/checkpoints"
        assert given["FASTVIDEO_LOG_LEVEL"] == "info"
        assert part.argv[-1] == f"fastvideo_{name.partition('-')[0]}"


def test_http_is_the_gateways_alone(config: StackConfig) -> None:
    having = [
        name
        for name, part in parts_of(config).items()
        if "FASTVIDEO_HTTP_LISTEN" in part.environment
    ]

    assert having == ["gateway"]


def test_a_worker_knows_no_database(config: StackConfig) -> None:
    given = {"FASTVIDEO_POSTGRES_DSN": "left over", "FASTVIDEO_POSTGRES_URL": "postgresql://x"}
    worker = parts_of(replace(config, inherited=given))["worker-1"].environment

    assert not [name for name in worker if "POSTGRES" in name]


def test_a_worker_starts_at_once_and_the_others_after_the_schema(config: StackConfig) -> None:
    needs = {name: part.needs for name, part in parts_of(config).items()}

    assert needs["worker-1"] == needs["worker-2"] == ()
    assert {needs[name] for name in needs if not name.startswith("worker")} == {("schema",)}


@pytest.mark.parametrize(("given", "threads"), [({}, "1"), ({"OMP_NUM_THREADS": "4"}, "4")])
def test_a_worker_has_one_thread_unless_told(given: dict[str, str], threads: str) -> None:
    worker = parts_of(load_config(StackOptions(DATA), given))["worker-1"]

    assert worker.environment["OMP_NUM_THREADS"] == threads
    assert worker.environment["OMP_WAIT_POLICY"] == "PASSIVE"


def test_telemetry_settings_and_models_are_passed_through() -> None:
    given = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317",
        "FASTVIDEO_MODELS": "a,b",
        "FASTVIDEO_CHECKPOINTS": "/mnt/checkpoints",
    }
    gateway = parts_of(load_config(StackOptions(DATA), given))["gateway"].environment

    assert gateway["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://127.0.0.1:4317"
    assert gateway["FASTVIDEO_MODELS"] == "a,b"
    assert gateway["FASTVIDEO_CHECKPOINTS"] == "/mnt/checkpoints"


def test_no_password_is_on_a_command_line_or_in_a_repr(config: StackConfig) -> None:
    secret = Credentials("super-secret", "app-secret", "nats-secret", "redis-secret")
    programs = PostgresPrograms(Path("/pg/postgres"), Path("/pg/initdb"), 18)
    parts = postgres_parts(programs, DataFolder(DATA), 5432, None, secret)
    shown = [repr(secret), repr(parts), repr(URLS), repr(config)]
    shown += [" ".join(part.argv) for part in parts]

    assert not [text for text in shown if "-secret" in text or ":pw@" in text]


def test_urls_carry_the_passwords() -> None:
    secret = Credentials("s", "a", "n", "r")

    assert postgres_dsn("app", secret.postgres_app, 1) == "postgresql://app:a@127.0.0.1:1/fastvideo"
    assert nats_url(2, secret) == "nats://fastvideo:n@127.0.0.1:2"
    assert redis_url(3, secret) == "redis://:r@127.0.0.1:3/0"


def test_an_old_postgres_is_spared_the_settings_of_a_new_one() -> None:
    secret = Credentials()
    new = PostgresPrograms(Path("/pg/postgres"), Path("/pg/initdb"), 18)

    for programs, has in ((new, True), (replace(new, major=15), False)):
        server = postgres_parts(programs, DataFolder(DATA), 5432, None, secret)[-1]
        assert ("io_method=sync" in server.argv) is has
