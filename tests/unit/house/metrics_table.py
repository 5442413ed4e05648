"""The table of metrics in docs/metrics.md, made of `fastvideo.telemetry.instruments`.

Run as `python tests/unit/house/metrics_table.py` it writes the table anew.
"""

from pathlib import Path

from fastvideo.telemetry.instruments import INSTRUMENTS, Instrument, Kind, plain, prometheus_name

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "metrics.md"
BEGIN, END = "<!-- metrics: begin -->\n", "<!-- metrics: end -->\n"
HEAD = (
    "| in Prometheus | in OpenTelemetry | kind | unit | labels | of | what |",
    "|---|---|---|---|---|---|---|",
)


def table() -> str:
    """The table, from its marker to its marker."""
    return BEGIN + "".join(f"{line}\n" for line in (*HEAD, *map(_row, INSTRUMENTS))) + END


def shown() -> str:
    """The table that the document has."""
    text = DOCUMENT.read_text()
    return text[text.index(BEGIN) : text.index(END) + len(END)]


def _row(instrument: Instrument) -> str:
    name = prometheus_name(instrument)
    name += "{_bucket,_sum,_count}" if instrument.kind is Kind.HISTOGRAM else ""
    labels = ", ".join(f"`{plain(label)}`" for label in instrument.labels)
    services = "all" if len(instrument.services) == 5 else ", ".join(instrument.services)
    cells = (
        f"`{name}`",
        f"`{instrument.name}`",
        str(instrument.kind),
        f"`{instrument.unit}`" if instrument.unit else "",
        labels,
        services,
        instrument.description,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    written = DOCUMENT.read_text().replace(shown(), table())
    DOCUMENT.write_text(written)
