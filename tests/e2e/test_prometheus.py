"""A real Prometheus scrapes a running stack, keeps its exemplars, and reads our rules."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from fastvideo.local.folder import DataFolder
from tests.e2e.stack import Stack, poll
from tests.integration.deploy.observed import DASHBOARDS, RULES, queries
from tests.plugins.servers import free_port

PROMETHEUS = shutil.which("prometheus")


def ask(url: str, **parameters: str) -> Any:
    """What the API answers."""
    query = urllib.parse.urlencode(parameters)
    with urllib.request.urlopen(f"{url}?{query}", timeout=60) as answer:
        return json.loads(answer.read())["data"]


@contextmanager
def prometheus(stack: Stack, folder: Path) -> Iterator[str]:
    """One that scrapes every service of the stack each second; the URL of its API."""
    assert PROMETHEUS is not None
    ports = json.loads(DataFolder(stack.data).ports.read_text())
    jobs: dict[str, list[str]] = {"gateway": [f"127.0.0.1:{ports['gateway-http']}"]}
    for name, port in ports.items():
        if name.endswith("-metrics"):
            jobs.setdefault(name.partition("-")[0], []).append(f"127.0.0.1:{port}")
    document = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": name, "static_configs": [{"targets": targets}]}
            for name, targets in jobs.items()
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(document))
    address = f"127.0.0.1:{free_port()}"
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={address}",
                "--enable-feature=exemplar-storage",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield f"http://{address}/api/v1"
        finally:
            process.terminate()
            process.wait(30)


@pytest.mark.slow
@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")
def test_prometheus_takes_every_scrape_and_its_exemplars_are_traces_here(
    stack: Stack, tmp_path: Path
) -> None:
    with prometheus(stack, tmp_path) as api:

        def targets() -> list[Any] | None:
            try:
                found: list[Any] = ask(f"{api}/targets")["activeTargets"]
            except OSError:
                return None
            return found if found and all(t["health"] != "unknown" for t in found) else None

        found = poll("every target is scraped", targets, 60)
        services = ("gateway", "scheduler", "worker", "artifacts", "sessions")
        assert {t["labels"]["job"]: t["lastError"] for t in found} == dict.fromkeys(services, "")
        made = stack.generate("a red three", "--steps", "4", "-o", str(tmp_path / "o.mp4"))

        def exemplar() -> str | None:
            series = ask(
                f"{api}/query_exemplars",
                query="fastvideo_request_duration_seconds_bucket",
                start="0",
                end="9999999999",
            )
            ids = [one["labels"]["trace_id"] for told in series for one in told["exemplars"]]
            return str(ids[-1]) if ids else None

        trace_id = poll("an exemplar is kept", exemplar, 60)

        def found_here() -> bool | None:
            return True if stack.run("trace", "--trace-id", trace_id).code == 0 else None

        poll(f"the trace {trace_id} is kept", found_here)
        assert stack.run("trace", made["id"]).code == 0

        for path in DASHBOARDS:
            for query in queries(path):
                ask(f"{api}/query", query=query)
        rules = [rule for group in ask(f"{api}/rules")["groups"] for rule in group["rules"]]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
        firing = {alert["labels"]["alertname"] for alert in ask(f"{api}/alerts")["alerts"]}
        assert firing & {"FastvideoDown", "FastvideoNoLeader", "FastvideoNoWorker"} == set()
