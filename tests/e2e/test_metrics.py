"""Every service of a running stack is scraped; what it tells leads to the trace of a request."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from fastvideo.local.folder import DataFolder
from fastvideo.telemetry.instruments import INSTRUMENTS, Kind, plain, prometheus_name
from tests.e2e.stack import Stack, poll
from tests.integration.deploy.observed import names_used

OPEN_METRICS = "application/openmetrics-text; version=1.0.0"
STEPS = 6
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
TRACE = CALLER.split("-")[1]
PUT = "fastvideo.artifacts.v1.ArtifactService/PutArtifact"
# Redis's and a newer program's business, which this stack has none of.
SOMETIMES = {"fastvideo_quotas_shared"}


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: Mapping[str, str]


def ask(url: str, body: Any = None, **headers: str) -> Answer:
    """One HTTP request; names of headers have underscores for dashes."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    data = None if body is None else json.dumps(body).encode()
    if data is not None:
        given["Content-Type"] = "application/json"
    request = urllib.request.Request(url, data, given)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Answer(answer.status, answer.read(), dict(answer.headers))
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.read(), dict(error.headers))


def scraped(stack: Stack) -> dict[str, list[Sample]]:
    """The samples of all services, by the service's name, as an OpenMetrics parser reads them."""
    ports = json.loads(DataFolder(stack.data).ports.read_text())
    found = {}
    for name in ports:
        if name.endswith("-metrics") or name == "gateway-http":
            url = f"http://{stack.address(name)}/metrics"
            text = ask(url, Accept=OPEN_METRICS).body.decode()
            families = text_string_to_metric_families(text)
            service = re.split("-", name)[0]
            found[service] = [sample for family in families for sample in family.samples]
    return found


def every(found: Mapping[str, list[Sample]]) -> list[Sample]:
    return [sample for samples in found.values() for sample in samples]


@pytest.fixture(scope="module")
def used(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The id of a request over HTTP; one of the command line went before it."""
    http = f"http://{stack.address('gateway-http')}"
    out = tmp_path_factory.mktemp("metrics") / "three.mp4"
    stack.generate("a red three for metrics", "--steps", str(STEPS), "-o", str(out))
    asked = {
        "model": "moving-digits",
        "prompt": "a blue two for metrics",
        "num_inference_steps": STEPS,
    }
    made = ask(f"{http}/v1/videos", asked, traceparent=CALLER)
    assert made.status == 202, made.body
    video_id = str(json.loads(made.body)["id"])
    assert ask(f"{http}/v1/videos", {"model": "no-such-model", "prompt": "a"}).status >= 400

    def completed() -> bool | None:
        video = json.loads(ask(f"{http}/v1/videos/{video_id}").body)
        assert video["status"] != "failed", video
        return True if video["status"] == "completed" else None

    poll("the video is completed", completed, 60)
    ask(f"{http}/v1/videos/{video_id}/content", traceparent=CALLER)
    return video_id


@pytest.mark.row("API-15")
def test_services_tell_of_queue_admission_steps_caches_bytes_log_and_errors(
    stack: Stack, used: str
) -> None:
    found = poll("all has been counted", lambda: _with_ends(stack))
    told = {sample.name for sample in every(found)}
    # What dashboards and alerts ask for is there.
    assert names_used() - told - SOMETIMES == set()
    assert found.keys() == {"gateway", "scheduler", "worker", "artifacts", "sessions"}

    def total(service: str, name: str, **labels: str) -> float:
        return sum(
            sample.value
            for sample in found[service]
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    ended = {"fastvideo_outcome": "completed", "fastvideo_model_id": "moving-digits"}
    assert total("gateway", "fastvideo_requests_accepted_total") >= 2
    assert total("scheduler", "fastvideo_requests_ended_total", **ended) >= 2
    steps = {"fastvideo_unit_kind": "diffusion_step"}
    assert total("scheduler", "fastvideo_steps_total", **steps) >= 2 * STEPS
    assert total("scheduler", "fastvideo_scheduler_workers") == 1
    assert total("scheduler", "fastvideo_scheduler_leading") == 1
    assert total("scheduler", "fastvideo_scheduler_free") > 0
    assert total("worker", "fastvideo_cache_lookups_total", fastvideo_outcome="miss") >= 2
    assert total("artifacts", "fastvideo_artifacts_received_bytes_total") > 0
    assert total("gateway", "fastvideo_errors_total") >= 1
    assert total("gateway", "fastvideo_log_events") > 0
    for service, samples in found.items():
        labels = {"fastvideo_service": service}
        infos = [sample for sample in samples if sample.name == "fastvideo_build_info"]
        assert [labels.items() <= info.labels.items() for info in infos] == [True]


def _with_ends(stack: Stack) -> dict[str, list[Sample]] | None:
    """A scrape that has the log's figures and the ends; both come a moment after."""
    found = scraped(stack)
    ended = sum(s.value for s in found["scheduler"] if s.name == "fastvideo_requests_ended_total")
    return (
        found if ended >= 2 and any(s.name == "fastvideo_log_lag" for s in every(found)) else None
    )


def test_every_series_is_in_the_catalog_with_labels_that_have_a_bound(
    stack: Stack, used: str
) -> None:
    known: dict[str, set[str]] = {}
    for one in INSTRUMENTS:
        name = prometheus_name(one)
        labels = {plain(label) for label in one.labels}
        if one.kind is Kind.HISTOGRAM:
            known |= {f"{name}{end}": labels | {"le"} for end in ("_bucket", "_sum", "_count")}
        else:
            known[name] = labels
    for sample in every(scraped(stack)):
        if sample.name.startswith("process_"):
            continue
        assert set(sample.labels) <= known[sample.name], sample.name
        values = " ".join(sample.labels.values())
        assert used not in values
        assert "req_" not in values
        assert "art_" not in values


@pytest.mark.row("OBS-03")
def test_an_exemplar_names_a_trace_that_can_be_looked_at(stack: Stack, used: str) -> None:
    def exemplar() -> str | None:
        for sample in scraped(stack)["scheduler"]:
            if sample.name == "fastvideo_request_duration_seconds_bucket" and sample.exemplar:
                return str(sample.exemplar.labels["trace_id"])
        return None

    trace_id = poll("a request's duration has an exemplar", exemplar)

    def tree() -> Any:
        outcome = stack.run("trace", "--trace-id", trace_id, "--json")
        names = _names(outcome.json["roots"]) if outcome.code == 0 else set()
        return outcome.json if "scheduler.request" in names else None

    found = poll(f"the trace {trace_id} is kept", tree)
    assert found["trace_id"] == trace_id
    assert "local stack" in found["source"]


@pytest.mark.row("OBS-03")
def test_one_trace_joins_the_callers_http_request_steps_and_artifact(
    stack: Stack, used: str
) -> None:
    wanted = {"scheduler.request", "scheduler.batch", "worker.batch", "POST /v1/videos", PUT}
    services = {"gateway", "scheduler", "worker", "artifacts"}

    def tree() -> Any:
        outcome = stack.run("trace", used, "--json")
        assert outcome.code == 0, outcome.err
        roots = outcome.json["roots"]
        # Each process sends its spans at a time of its own.
        whole = wanted <= _names(roots) and _services(roots) >= services
        return outcome.json if whole else None

    found = poll(f"the whole trace of {used}", tree)
    assert (found["trace_id"], found["request_id"]) == (TRACE, used)
    # Both requests of the caller are roots here; its own span is its own affair.
    assert [root["orphan"] for root in found["roots"]] == [True] * len(found["roots"])
    assert _services(found["roots"]) == services
    # However they were divided over windows and batches.
    steps = [
        node["units"]
        for node in _nodes(found["roots"])
        if (node["name"], node["detail"]) == ("scheduler.batch", "diffusion_step")
    ]
    assert sum(steps) >= STEPS
    shown = stack.run("trace", used)
    assert shown.code == 0
    assert "scheduler.batch diffusion_step" in shown.out
    assert "its caller's span is not here" in shown.out


def test_without_spans_the_tree_is_made_of_the_log_and_says_so(
    stack: Stack, used: str, tmp_path: Path
) -> None:
    stack_without = Stack(
        stack.data, environment={"FASTVIDEO_TRACE_FOLDER": str(tmp_path / "none")}
    )
    outcome = stack_without.run("trace", used, "--json")
    assert outcome.code == 0, outcome.err
    assert "event log" in outcome.json["source"]
    (root,) = outcome.json["roots"]
    assert root["name"] == "request completed"
    denoise = next(node for node in root["children"] if node["name"] == "loop denoise")
    assert sum(n["count"] for n in denoise["children"] if n["detail"] == "diffusion_step") == STEPS
    unknown = stack_without.run("trace", "--trace-id", "0" * 31 + "1")
    assert unknown.code == 1
    assert "no span of trace" in unknown.err


def _nodes(nodes: Any) -> list[Any]:
    return [found for node in nodes for found in (node, *_nodes(node["children"]))]


def _names(nodes: Any) -> set[str]:
    return {node["name"] for node in _nodes(nodes)}


def _services(nodes: Any) -> set[str]:
    return {node["service"] for node in _nodes(nodes)}
