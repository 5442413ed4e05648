"""What the manifests give each service: variables, secrets, certificates, keys, scrapers."""

import importlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from fastvideo.rpc.api_keys import ApiToken
from fastvideo.service.environment import Environment
from tests.integration.deploy.manifests import (
    ROOT,
    SERVICES,
    Objects,
    container_of,
    environment,
    named,
    own_variables,
    pod_of,
    secret,
    workloads,
)
from tests.plugins.certificates import Authority

METRICS_PORT = 9464
SECRETS = "/run/secrets/fastvideo/"
PEER_NAME = "fastvideo.internal"


@pytest.fixture(scope="module")
def mounted(objects: Objects, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of mounted secrets, with what is in them."""
    root = tmp_path_factory.mktemp("secrets")
    authority = Authority(root)
    for name in ("tls", "gateway-tls"):
        pair = authority.issue(name)
        (root / name).mkdir()
        shutil.copy(pair.certificate, root / name / "tls.crt")
        shutil.copy(pair.key, root / name / "tls.key")
    shutil.copy(authority.file, root / "tls" / "ca.crt")
    admin = next(
        volume["secret"]["secretName"]
        for item in workloads(objects)
        if named(item) == "gateway"
        for volume in pod_of(item)["volumes"]
        if volume["name"] == "admin"
    )
    (root / "admin").mkdir()
    (root / "admin" / "key").write_text(secret(objects, admin)["key"])
    return root


def config_of(objects: Objects, service: str, mounted: Path) -> Any:
    """The configuration that a service makes of its environment."""
    module = importlib.import_module(f"fastvideo_{service}.config")
    seen = environment(objects, service)
    found = {key: value.replace(SECRETS, f"{mounted}/") for key, value in seen.items()}
    return module.load_config(Environment(found))


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_a_service_accepts_the_environment_that_it_is_given(
    objects: Objects, service: str, mounted: Path
) -> None:
    assert config_of(objects, service, mounted).listen == "0.0.0.0:50051"


def test_what_is_read_is_mounted(objects: Objects) -> None:
    for service in SERVICES:
        mounts = {
            mount["mountPath"]: mount["name"]
            for mount in container_of(objects, service)["volumeMounts"]
        }
        (item,) = [item for item in workloads(objects) if named(item) == service]
        volumes = {volume["name"]: volume for volume in pod_of(item)["volumes"]}
        for name, value in environment(objects, service).items():
            if value.startswith(SECRETS):
                folder, _, file = value.rpartition("/")
                volume = volumes[mounts[folder]]
                assert file in secret(objects, volume["secret"]["secretName"]), name


def readers(service: str) -> list[Path]:
    """The files in which a service reads its variables."""
    shared = ROOT / "libs" / "fastvideo" / "service"
    return [
        *(ROOT / "services" / service / f"fastvideo_{service}").rglob("config.py"),
        shared / "environment.py",
        shared / "tls.py",
    ]


def read_by(paths: Iterable[Path]) -> set[str]:
    return set(re.findall(r"FASTVIDEO_[A-Z_]+", "".join(path.read_text() for path in paths)))


def test_no_variable_is_misspelt(objects: Objects) -> None:
    everywhere = {path for service in SERVICES for path in readers(service)}
    read = read_by([*everywhere, ROOT / "libs/fastvideo/local/schema.py"])
    for service in SERVICES:
        given = {name for name in environment(objects, service) if name.startswith("FASTVIDEO_")}
        assert given - read == set(), service
        own = {name for name in own_variables(objects, service) if name.startswith("FASTVIDEO_")}
        assert own <= read_by(readers(service)), service


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_what_a_service_must_have_it_is_given(objects: Objects, service: str) -> None:
    text = "".join(path.read_text() for path in readers(service))
    required = set(re.findall(r"required\(\"(FASTVIDEO_[A-Z_]+)\"\)", text))
    assert service == "worker" or required
    seen = environment(objects, service)
    assert {name for name in required if not seen.get(name)} == set()
    # Silence about these would go unnoticed: a deployment without them is another one.
    assert seen.get("FASTVIDEO_METRICS_LISTEN") == f"0.0.0.0:{METRICS_PORT}"
    if service in {"gateway", "worker"}:
        assert seen.get("FASTVIDEO_REDIS_URL")
        assert seen.get("FASTVIDEO_SCHEDULER_ADDRESSES")
    if service in {"gateway", "scheduler", "sessions"}:
        assert seen.get("FASTVIDEO_MASTER_KEY")


def test_people_show_keys(objects: Objects, mounted: Path) -> None:
    access = config_of(objects, "gateway", mounted).access
    assert access.auth == "keys"
    token = ApiToken.parse(access.admin_key_file.read_text())
    assert token is not None
    assert token.key_id == "admin"


def test_services_of_prod_speak_tls_and_know_one_another(
    request: pytest.FixtureRequest, objects: Objects, mounted: Path
) -> None:
    is_prod = "prod" in request.node.callspec.id
    for service in SERVICES:
        tls = config_of(objects, service, mounted).tls
        probes = [
            container_of(objects, service)[kind] for kind in ("startupProbe", "readinessProbe")
        ]
        assert (tls.server is not None, tls.client is not None) == (is_prod, is_prod)
        if not is_prod:
            continue
        assert tls.client.name == PEER_NAME
        assert tls.client.certificate is not None
        # People have keys and no certificates.
        assert (tls.server.client_ca is None) == (service == "gateway")
        # A kubelet cannot speak it.
        assert not any("grpc" in probe for probe in probes)


def test_pods_say_where_they_are_scraped(objects: Objects) -> None:
    for item in workloads(objects):
        if named(item) not in SERVICES:
            continue
        told = item["spec"]["template"]["metadata"]["annotations"]
        assert told["prometheus.io/scrape"] == "true"
        assert told["prometheus.io/port"] == str(METRICS_PORT)
        ports = {
            port["name"]: port["containerPort"] for port in pod_of(item)["containers"][0]["ports"]
        }
        assert ports["metrics"] == METRICS_PORT


def test_a_worker_gets_no_database(objects: Objects) -> None:
    worker = container_of(objects, "worker")
    secrets = [one["secretRef"]["name"] for one in worker["envFrom"] if "secretRef" in one]
    assert [name.startswith("fastvideo-redis") for name in secrets] == [True]
    assert "POSTGRES" not in str(worker)
    assert "FASTVIDEO_POSTGRES_DSN" not in environment(objects, "worker")
