"""What the manifests render to, and how a test asks about it."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
OVERLAYS = ROOT / "deploy" / "k8s" / "overlays"
SERVICES = {"artifacts", "gateway", "scheduler", "sessions", "worker"}
# The Secrets that an administrator makes for prod, as its comment asks for them.
EXTERNAL = {
    "fastvideo-servers": {
        "FASTVIDEO_POSTGRES_DSN": "postgresql://somewhere",
        "FASTVIDEO_NATS_URL": "nats://somewhere",
    },
    "fastvideo-redis": {"FASTVIDEO_REDIS_URL": "redis://somewhere"},
    "fastvideo-master-key": {"FASTVIDEO_MASTER_KEY": "ab" * 32},
    "fastvideo-admin-key": {"key": f"fv_admin_{'k' * 43}"},
    "fastvideo-tls": {"tls.crt": "", "tls.key": "", "ca.crt": ""},
    "fastvideo-gateway-tls": {"tls.crt": "", "tls.key": ""},
}

Objects = list[dict[str, Any]]


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


def secret(objects: Objects, name: str) -> dict[str, str]:
    """What a Secret or a ConfigMap holds; one that an administrator makes, what is asked for."""
    found = next((item for item in objects if named(item) == name), None)
    if found is None:
        return dict(EXTERNAL[name])
    data: dict[str, str] = found.get("data") or {}
    if found["kind"] == "Secret":
        return {key: base64.b64decode(value).decode() for key, value in data.items()}
    return data


def container_of(objects: Objects, service: str) -> dict[str, Any]:
    (item,) = [item for item in workloads(objects) if named(item) == service]
    (container,) = pod_of(item)["containers"]
    return dict(container)


def own_variables(objects: Objects, service: str) -> dict[str, str]:
    """What a container alone is given."""
    return {
        one["name"]: one.get("value", "10.0.0.7").replace("$(POD_IP)", "10.0.0.7")
        for one in container_of(objects, service)["env"]
    }


def environment(objects: Objects, service: str) -> dict[str, str]:
    """What a service's process sees, the image's own variables included."""
    image = (ROOT / "services" / service / "Containerfile").read_text()
    seen = dict(re.findall(r"(FASTVIDEO_[A-Z_]+)=(\S+)", image))
    for source in container_of(objects, service)["envFrom"]:
        seen |= secret(objects, next(iter(source.values()))["name"])
    return seen | own_variables(objects, service)
