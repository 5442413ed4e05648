"""Who may connect to whom, by the network policies of the manifests."""

from typing import Any

from tests.integration.deploy.manifests import SERVICES, Objects, named, workloads

STRANGER = "stranger"
# Who reaches whose gRPC; people and everybody else are strangers.
EDGES = {
    "gateway": {"gateway", "artifacts", "scheduler", "sessions", "worker", STRANGER},
    "scheduler": {"gateway", "worker"},
    "worker": {"gateway", "scheduler", "worker"},
    "artifacts": {"gateway", "worker"},
    "sessions": {"gateway"},
}


def may_connect(objects: Objects, source: str, target: str, port: str) -> bool:
    """Whether the policies let the pods of one workload reach a port of another's."""
    labels = {
        named(item): item["spec"]["template"]["metadata"]["labels"]
        for item in objects
        if item["kind"] in {"Deployment", "StatefulSet", "Job"}
    }

    def chosen(selector: dict[str, Any], name: str) -> bool:
        return bool(selector.get("matchLabels", {}).items() <= labels.get(name, {}).items())

    policies = [
        item["spec"]
        for item in objects
        if item["kind"] == "NetworkPolicy" and chosen(item["spec"]["podSelector"], target)
    ]
    assert policies, f"nothing guards {target}"
    rules = [rule for policy in policies for rule in policy.get("ingress", ())]
    return any(
        port in {one["port"] for one in rule["ports"]}
        and (
            "from" not in rule
            or any(
                "podSelector" in peer and source in labels and chosen(peer["podSelector"], source)
                for peer in rule["from"]
            )
        )
        for rule in rules
    )


def test_only_services_reach_what_is_inside(objects: Objects) -> None:
    everybody = {*SERVICES, STRANGER}
    for target, allowed in EDGES.items():
        reach = {source for source in everybody if may_connect(objects, source, target, "grpc")}
        assert reach == allowed, target
    assert may_connect(objects, STRANGER, "gateway", "http")
    for target in SERVICES:
        # Scrapers are told by their namespace.
        assert not may_connect(objects, STRANGER, target, "metrics")
    servers = {
        "postgres": SERVICES - {"worker"} | {"migrate"},
        "nats": SERVICES - {"worker"},
        "redis": {"gateway", "worker"},
    }
    present = {named(item) for item in workloads(objects)}
    for target, wanted in servers.items():
        if target in present:
            reach = {
                source
                for source in {*everybody, "migrate"}
                if may_connect(objects, source, target, target)
            }
            assert reach == wanted, target
