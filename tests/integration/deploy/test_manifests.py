"""The Kubernetes manifests render, are valid, and mean what they say."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.deploy.manifests import (
    EXTERNAL,
    OVERLAYS,
    SERVICES,
    Objects,
    containers,
    named,
    pod_of,
    workloads,
)

KUBERNETES = "1.37"


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
    external = {("Secret", name) for name in EXTERNAL}
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
            if "secret" in volume:
                assert ("Secret", volume["secret"]["secretName"]) in kinds | external
        for container in pod_of(item)["containers"]:
            assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
            for source in container.get("envFrom", []):
                kind = "ConfigMap" if "configMapRef" in source else "Secret"
                name = next(iter(source.values()))["name"]
                assert (kind, name) in kinds | external


def test_prod_holds_no_secret() -> None:
    text = "".join(path.read_text() for path in (OVERLAYS / "prod").glob("*.yaml"))
    assert "secretGenerator" not in text
    assert "kind: Secret" not in text
    assert "://fastvideo:" not in text
