"""The catalog of metrics, and the documents that speak of it."""

import importlib.util
from pathlib import Path

from fastvideo.telemetry.instruments import INSTRUMENTS, Instrument, Kind, prometheus_name

ROOT = Path(__file__).resolve().parents[3]
UNITS = {"s", "By", "1", ""}
# What no label may be made of: there is no bound to how many there are.
UNBOUNDED = ("request.id", "request_id", "session", "artifact.id", "tenant", "worker.id", "url")


def test_every_instrument_is_in_the_catalog_once() -> None:
    from fastvideo.telemetry import instruments

    made = [value for value in vars(instruments).values() if isinstance(value, Instrument)]
    assert {one.name for one in made} == {one.name for one in INSTRUMENTS}
    names = [prometheus_name(one) for one in INSTRUMENTS]
    assert len(set(names)) == len(names)


def test_units_are_of_ucum_and_labels_are_bounded() -> None:
    for one in INSTRUMENTS:
        assert one.unit in UNITS or one.unit.startswith("{"), one.name
        assert not [label for label in one.labels if any(word in label for word in UNBOUNDED)]
        assert bool(one.boundaries) == (one.kind is Kind.HISTOGRAM), one.name


def test_the_document_has_the_catalog_as_it_is() -> None:
    path = ROOT / "tests" / "unit" / "house" / "metrics_table.py"
    spec = importlib.util.spec_from_file_location("metrics_table", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.shown() == module.table(), f"run python {path.relative_to(ROOT)}"
