"""What people are told of a rebuild."""

from dataclasses import replace

from fastvideo.cli.rebuilding import report_lines
from fastvideo.events.projections.report import RebuildReport, TableComparison

TABLE = TableComparison(
    table="requests",
    rows_live=3,
    rows_built=3,
    digest_live="ab" * 32,
    digest_built="ab" * 32,
    first_difference="",
)
REPORT = RebuildReport(
    projection="gateway",
    layout_version=2,
    positions={0: 4_000},
    tables=(TABLE,),
    equal=True,
    swapped=True,
    events=4_000,
    seconds=2.0,
)


def test_equal_rows_are_told_with_their_digest() -> None:
    assert report_lines(REPORT, check=False) == [
        "gateway (layout 2): equal, the new rows are in use; 4,000 events in 2.0 s (2,000/s)",
        "  requests: 3 rows, abababababababab",
    ]


def test_a_difference_is_told_with_its_table_and_key() -> None:
    table = replace(TABLE, rows_live=2, digest_live="cd" * 32, first_difference="req_1")
    report = replace(REPORT, tables=(table,), equal=False, swapped=False)
    assert report_lines(report, check=False) == [
        "gateway (layout 2): DIFFERENT, the old rows stay in use; --swap takes the new ones; "
        "4,000 events in 2.0 s (2,000/s)",
        "  requests: 2 rows in use, 3 by the log; they differ, first at key req_1",
    ]
    assert "compared only" in report_lines(report, check=True)[0]
