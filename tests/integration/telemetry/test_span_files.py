"""Spans in files: bounded, whole however many write, and read by their trace."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult

from fastvideo.telemetry import providers
from fastvideo.telemetry.config import TelemetryConfig
from fastvideo.telemetry.span_files import SpanFiles, read_spans

TRACER = TracerProvider(
    resource=Resource({"service.name": "worker"}), shutdown_on_exit=False
).get_tracer("test")


def ended(name: str) -> ReadableSpan:
    span = TRACER.start_span(name)
    span.end()
    assert isinstance(span, ReadableSpan)
    return span


def test_spans_of_a_process_are_found_by_their_trace(tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    telemetry = providers.build(
        "worker",
        TelemetryConfig(trace_folder=folder),
        attributes={"service.instance.id": "worker-1"},
    )
    tracer = telemetry.tracer_provider.get_tracer("test")
    with tracer.start_as_current_span("batch") as batch, tracer.start_as_current_span("step"):
        trace_id = f"{batch.get_span_context().trace_id:032x}"
    tracer.start_span("another").end()
    telemetry.shutdown()
    assert (folder / "worker-1.jsonl").stat().st_mode & 0o077 == 0
    found = read_spans(folder, lambda line: trace_id in line)
    assert {span.name for span in found} >= {"batch", "step"}
    assert {span.instance for span in found} == {"worker-1"}


def test_two_files_are_all_that_is_kept(tmp_path: Path) -> None:
    files = SpanFiles(tmp_path, "worker", bytes_max=4_000)
    for index in range(100):
        assert files.export([ended(f"step-{index}")]) is SpanExportResult.SUCCESS
    kept = sorted(tmp_path.iterdir())
    assert [path.name for path in kept] == ["worker.jsonl", "worker.jsonl.1"]
    assert sum(path.stat().st_size for path in kept) < 2 * 4_000 + 1_000
    names = [span.name for span in read_spans(tmp_path, lambda _: True)]
    # The newest are there, in order.
    assert names == [f"step-{index}" for index in range(100 - len(names), 100)]


def test_several_writers_of_one_name_lose_nothing(tmp_path: Path) -> None:
    def write(writer: int) -> None:
        files = SpanFiles(tmp_path, "fastvideo-cli", bytes_max=20_000)
        for index in range(30):
            files.export([ended(f"{writer}-{index}")])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert lines
    assert all(line.startswith("{") and line.endswith("}") for line in lines)


def test_a_file_that_is_put_aside_while_others_are_read_is_read_there(tmp_path: Path) -> None:
    for name in ("gateway", "worker"):
        SpanFiles(tmp_path, name).export([ended(name)])
    SpanFiles(tmp_path, "worker", bytes_max=1).export([ended("worker before")])
    SpanFiles(tmp_path, "worker").export([ended("worker now")])

    def wanted(line: str) -> bool:
        if "gateway" in line:
            (tmp_path / "worker.jsonl").replace(tmp_path / "worker.jsonl.1")
        return True

    assert [span.name for span in read_spans(tmp_path, wanted)] == ["gateway", "worker now"]


def test_a_line_that_was_cut_short_is_passed_over(tmp_path: Path) -> None:
    files = SpanFiles(tmp_path, "worker")
    files.export([ended("whole")])
    with open(tmp_path / "worker.jsonl", "a") as file:
        file.write('{"resourceSpans": [{"scopeSp\n[]\n\xff\n')
    files.export([ended("after")])
    assert [span.name for span in read_spans(tmp_path, lambda _: True)] == ["whole", "after"]


def test_a_folder_that_cannot_be_written_costs_the_spans_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files = SpanFiles(tmp_path / "file" / "traces", "worker")
    assert files.export([ended("step")]) is SpanExportResult.FAILURE
