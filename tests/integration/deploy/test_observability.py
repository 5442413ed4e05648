"""Dashboards, alerts and the scrape configuration: well formed, and of metrics that there are."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from fastvideo.telemetry.instruments import INSTRUMENTS, Kind, prometheus_name
from tests.integration.deploy.observed import (
    DASHBOARDS,
    DEPLOY,
    RULES,
    dashboard,
    names_used,
    queries,
)

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")
TESTS = Path(__file__).with_name("alerts_test.yml")
COLUMNS = 24


def promtool(*arguments: object) -> None:
    """Run it; what it says is the failure."""
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_dashboards_and_alerts_use_metrics_of_the_catalog() -> None:
    known = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
    for one in INSTRUMENTS:
        name = prometheus_name(one)
        endings = ("_bucket", "_sum", "_count") if one.kind is Kind.HISTOGRAM else ("",)
        known |= {name + ending for ending in endings}
    assert names_used() - known == set()


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_one_that_grafana_takes(path: Path) -> None:
    """What its schema (39) asks of what is used here."""
    board = dashboard(path)
    assert (board["uid"], board["schemaVersion"]) == (f"fastvideo-{path.stem}", 39)
    assert board["title"]
    variables = {variable["name"]: variable["type"] for variable in board["templating"]["list"]}
    assert variables["prometheus"] == variables["jaeger"] == "datasource"
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < COLUMNS
        assert not cells & taken, panel["title"]
        taken |= cells
        assert panel["type"] in ("row", "stat", "timeseries")
        if panel["type"] != "row":
            assert panel["description"]
            assert panel["datasource"] == {"type": "prometheus", "uid": "${prometheus}"}
            refs = [target["refId"] for target in panel["targets"]]
            assert refs == sorted(set(refs))
            assert panel["fieldConfig"]["defaults"]["unit"]


def test_exemplars_open_traces_in_a_data_source_that_there_is() -> None:
    document = yaml.safe_load((DEPLOY / "grafana" / "datasources.yaml").read_text())
    sources = {source["uid"]: source for source in document["datasources"]}
    (to,) = sources["fastvideo-prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    assert to["name"] == "trace_id"
    assert sources[to["datasourceUid"]]["type"] == "jaeger"
    assert any(
        target["exemplar"]
        for path in DASHBOARDS
        for panel in dashboard(path)["panels"]
        for target in panel.get("targets", ())
    )


@needs_promtool
def test_rules_alert_of_what_they_say(tmp_path: Path) -> None:
    for file in (RULES, TESTS):
        shutil.copy(file, tmp_path)
    promtool("check", "rules", tmp_path / RULES.name)
    promtool("test", "rules", tmp_path / TESTS.name)


@needs_promtool
def test_every_query_of_a_dashboard_is_one_that_prometheus_reads(tmp_path: Path) -> None:
    wanted = [query for path in DASHBOARDS for query in queries(path)]
    recorded = [{"record": f"query_{index}", "expr": query} for index, query in enumerate(wanted)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": recorded}]}))
    promtool("check", "rules", file)


@needs_promtool
def test_the_scrape_configuration_is_one_that_prometheus_takes(tmp_path: Path) -> None:
    document = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    for job in document["scrape_configs"]:
        # Debian's build knows no Kubernetes.
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
        job["static_configs"] = [{"targets": ["127.0.0.1:9464"]}]
    shutil.copy(RULES, tmp_path)
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(document))
    promtool("check", "config", file)
