"""The Kubernetes manifests render, are valid, and mean what they say."""

import base64
import importlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fastvideo.service import Environment

ROOT = Path(__file__).resolve().parents[3]
OVERLAYS = ROOT / "deploy" / "k8s" / "overlays"
SERVICES = {"artifacts", "gateway", "scheduler", "sessions", "worker"}
KUBERNETES = "1.37"
# The Secret that an administrator makes for prod.
SERVERS = {
    "data": {
        "FASTVIDEO_POSTGRES_DSN": "postgresql://somewhere",
        "FASTVIDEO_NATS_URL": "nats://somewhere",
        "FASTVIDEO_REDIS_URL": "redis://somewhere",
    }
}

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

Objects = list[dict[str, Any]]


@pytest.fixture(scope="module", params=["dev", "prod"])
def rendered(request: pytest.FixtureRequest) -> str:
    """What would be applied."""
    result = subprocess.run(
        ["kubectl", "kustomize", str(OVERLAYS / request.param)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


@pytest.fixture(scope="module")
def objects(rendered: str) -> Objects:
    return list(yaml.safe_load_all(rendered))


def workloads(objects: Objects) -> Iterator[dict[str, Any]]:
    """Deployments and StatefulSets."""
    yield from (item for item in objects if item["kind"] in {"Deployment", "StatefulSet"})


def named(item: dict[str, Any]) -> str:
    return str(item["metadata"]["name"])


def pod_of(item: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = item["spec"]["template"]["spec"]
    return spec


def containers(objects: Objects) -> Iterator[tuple[str, dict[str, Any]]]:
    for item in objects:
        if item["kind"] in {"Deployment", "StatefulSet", "Job"}:
            for container in pod_of(item)["containers"]:
                yield named(item), container


def test_every_object_is_valid_for_its_schema(rendered: str, tmp_path: Path) -> None:
    validate = shutil.which("kubernetes-validate")
    if validate is None:
        pytest.skip("kubernetes-validate is not installed")
    file = tmp_path / "all.yaml"
    file.write_text(rendered)
    result = subprocess.run(
        [validate, "--strict", "-k", KUBERNETES, str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_all_five_services_run(objects: Objects) -> None:
    assert {named(item) for item in workloads(objects)} >= SERVICES


def test_selectors_choose_their_own_pods(objects: Objects) -> None:
    labels = {
        named(item): item["spec"]["template"]["metadata"]["labels"] for item in workloads(objects)
    }
    for item in workloads(objects):
        assert item["spec"]["selector"]["matchLabels"].items() <= labels[named(item)].items()
    for item in objects:
        if item["kind"] == "Service":
            selector = item["spec"]["selector"]
        elif item["kind"] == "PodDisruptionBudget":
            selector = item["spec"]["selector"]["matchLabels"]
        else:
            continue
        chosen = [name for name, pod in labels.items() if selector.items() <= pod.items()]
        assert chosen == [named(item)]


def test_services_and_probes_name_ports_that_exist(objects: Objects) -> None:
    ports = {
        name: {port["name"]: port["containerPort"] for port in container.get("ports", [])}
        for name, container in containers(objects)
    }
    for item in objects:
        if item["kind"] == "Service":
            for port in item["spec"]["ports"]:
                assert port["targetPort"] in ports[named(item)]
    for name, container in containers(objects):
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            probe = container.get(kind, {})
            if "grpc" in probe:
                assert probe["grpc"]["port"] in ports[name].values()
            for way in ("tcpSocket", "httpGet"):
                if way in probe:
                    assert probe[way]["port"] in ports[name]


def test_every_container_that_serves_has_probes_and_every_container_has_bounds(
    objects: Objects,
) -> None:
    for name, container in containers(objects):
        assert container["resources"]["requests"].keys() >= {"cpu", "memory"}, name
        assert "memory" in container["resources"]["limits"], name
        if container.get("ports"):
            assert container.keys() >= {"readinessProbe", "livenessProbe"}, name


def test_our_pods_are_unprivileged(objects: Objects) -> None:
    for item in objects:
        if named(item) in SERVICES | {"migrate"} and "template" in item.get("spec", {}):
            assert pod_of(item)["securityContext"]["runAsNonRoot"] is True
            (container,) = pod_of(item)["containers"]
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_mounts_volumes_claims_and_references_exist(objects: Objects) -> None:
    kinds = {(item["kind"], named(item)) for item in objects}
    external = {("Secret", "fastvideo-servers"), ("Secret", "fastvideo-master-key")}
    for item in objects:
        if item["kind"] not in {"Deployment", "StatefulSet", "Job"}:
            continue
        volumes = {volume["name"] for volume in pod_of(item).get("volumes", [])}
        volumes |= {
            claim["metadata"]["name"] for claim in item["spec"].get("volumeClaimTemplates", [])
        }
        for volume in pod_of(item).get("volumes", []):
            if "persistentVolumeClaim" in volume:
                claim = volume["persistentVolumeClaim"]["claimName"]
                assert ("PersistentVolumeClaim", claim) in kinds
        for container in pod_of(item)["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
            for source in container.get("envFrom", []):
                kind = "ConfigMap" if "configMapRef" in source else "Secret"
                name = next(iter(source.values()))["name"]
                assert (kind, name) in kinds | external


def environment(objects: Objects, service: str) -> dict[str, str]:
    """What a service's process sees, the image's own variables included."""
    image = (ROOT / "services" / service / "Containerfile").read_text()
    seen = dict(re.findall(r"(FASTVIDEO_[A-Z_]+)=(\S+)", image))
    (item,) = [item for item in workloads(objects) if named(item) == service]
    (container,) = pod_of(item)["containers"]
    for source in container["envFrom"]:
        name = next(iter(source.values()))["name"]
        # An external Secret is taken to hold what the overlay's comment asks for.
        values = next((other for other in objects if named(other) == name), SERVERS)
        data = values.get("data") or {}
        if values.get("kind") == "Secret":
            data = {key: base64.b64decode(value).decode() for key, value in data.items()}
        seen |= data
    for variable in container["env"]:
        seen[variable["name"]] = variable.get("value", "10.0.0.7").replace("$(POD_IP)", "10.0.0.7")
    return seen


@pytest.mark.parametrize("service", sorted(SERVICES))
def test_a_service_accepts_the_environment_that_it_is_given(objects: Objects, service: str) -> None:
    module = importlib.import_module(f"fastvideo_{service}.config")
    config = module.load_config(Environment(environment(objects, service)))
    assert config.listen == "0.0.0.0:50051"


def test_no_variable_is_misspelt(objects: Objects) -> None:
    readers = [
        *ROOT.glob("services/*/*/config.py"),
        ROOT / "libs/fastvideo/service/environment.py",
        ROOT / "libs/fastvideo/local/schema.py",
    ]
    read = set(re.findall(r"FASTVIDEO_[A-Z_]+", "".join(path.read_text() for path in readers)))
    # Redis is part of the contract with services, and no service caches in it yet.
    read |= {"FASTVIDEO_REDIS_URL"}
    for service in SERVICES:
        given = {name for name in environment(objects, service) if name.startswith("FASTVIDEO_")}
        assert given - read == set(), service


def test_a_worker_gets_no_database(objects: Objects) -> None:
    (worker,) = [item for item in workloads(objects) if named(item) == "worker"]
    assert "secretRef" not in str(worker)
    assert "POSTGRES" not in str(worker)


def test_prod_holds_no_secret() -> None:
    text = "".join(path.read_text() for path in (OVERLAYS / "prod").glob("*.yaml"))
    assert "secretGenerator" not in text
    assert "kind: Secret" not in text
    assert "://fastvideo:" not in text
