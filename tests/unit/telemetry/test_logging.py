"""JSON lines that carry the trace and the request, without secrets."""

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from fastvideo.telemetry import logging as fv_logging
from fastvideo.telemetry import tracing


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """Where the configured logs go; the standard library's state is put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    fv_logging.configure("gateway", level="DEBUG", stream=stream)
    yield stream
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)


def read(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_names_service_level_logger_time_and_fields(lines: io.StringIO) -> None:
    fv_logging.get_logger("fastvideo.test").info("request accepted", model_id="moving-digits")
    (line,) = read(lines)
    assert line["message"] == "request accepted"
    assert line["model_id"] == "moving-digits"
    assert (line["service"], line["level"], line["logger"]) == ("gateway", "info", "fastvideo.test")
    assert str(line["time"]).endswith("Z")


def test_a_line_carries_the_trace_and_the_bound_request(
    lines: io.StringIO, spans: InMemorySpanExporter
) -> None:
    log = fv_logging.get_logger("fastvideo.test")
    with tracing.span("submit"), fv_logging.bound(request_id="req_1", session_id=""):
        log.warning("slow")
        trace_id = tracing.current_trace_id()
    log.info("after")
    inside, after = read(lines)
    assert inside["trace_id"] == trace_id
    assert len(str(inside["span_id"])) == 16
    assert inside["request_id"] == "req_1"
    assert "session_id" not in inside
    assert not {"trace_id", "request_id"} & after.keys()


def test_lines_of_other_libraries_look_the_same(lines: io.StringIO) -> None:
    with fv_logging.bound(request_id="req_1"):
        logging.getLogger("elsewhere").warning("lost %s", "connection")
    (line,) = read(lines)
    assert line["message"] == "lost connection"
    assert (line["level"], line["logger"], line["request_id"]) == ("warning", "elsewhere", "req_1")


def test_no_secret_reaches_a_line(lines: io.StringIO) -> None:
    log = fv_logging.get_logger("fastvideo.test")
    log.info("connecting", dsn="postgresql://app:hunter2@db", headers={"authorization": "hunter2"})
    logging.getLogger("elsewhere").error("cannot reach redis://u:hunter2@h")
    try:
        raise OSError("nats://app:hunter2@bus refused")
    except OSError:
        log.exception("lost")
    assert "hunter2" not in lines.getvalue()
    assert "OSError" in str(read(lines)[-1]["exception"])


def test_values_that_are_not_json_are_still_one_line(lines: io.StringIO) -> None:
    fv_logging.get_logger("fastvideo.test").info("odd", value={1, 2} - {1}, text="a\nb")
    (line,) = read(lines)
    assert line["value"] == "{2}"


def test_debug_of_chatty_libraries_is_left_out(lines: io.StringIO) -> None:
    logging.getLogger("nats.client").debug("ping")
    assert lines.getvalue() == ""


def test_an_unconfigured_program_hears_only_warnings(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    log = fv_logging.get_logger("fastvideo.unconfigured")
    log.info("quiet")
    log.warning("loud")
    assert "loud" in caplog.text
    assert "quiet" not in caplog.text
    assert capsys.readouterr().out == ""


def test_python_warnings_are_lines_too(lines: io.StringIO) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("deprecated", stacklevel=1)
    assert "deprecated" in str(read(lines)[0]["message"])
