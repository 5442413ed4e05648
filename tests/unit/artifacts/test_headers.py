"""The header of a put as a record."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastvideo.api.artifacts.v1 import artifacts_pb2
from fastvideo.api.common.v1 import artifact_pb2
from fastvideo.artifacts.types import ArtifactKind
from fastvideo.errors import InvalidField
from fastvideo_artifacts.headers import record_of

AT = datetime(2026, 1, 1, tzinfo=UTC)


def header(**fields: object) -> artifacts_pb2.PutArtifactHeader:
    values: dict[str, object] = {
        "artifact_id": "art_1",
        "kind": artifact_pb2.ARTIFACT_KIND_TEXT,
        "name": "prompt.txt",
        "content_type": "text/plain; charset=utf-8",
    }
    return artifacts_pb2.PutArtifactHeader(**(values | fields))  # type: ignore[arg-type]


@pytest.mark.row("REQ-05")
@pytest.mark.parametrize("kind", list(ArtifactKind))
def test_every_kind_has_its_number_on_the_wire(kind: ArtifactKind) -> None:
    number = artifact_pb2.ArtifactKind.Value(f"ARTIFACT_KIND_{kind.upper()}")
    record = record_of(header(kind=number), AT)
    assert (record.kind, record.created_at, record.digest) == (kind, AT, "")


def test_an_unknown_field_is_refused() -> None:
    sent = header()
    sent.MergeFromString(b"\x98\x06\x01")  # Field 99, a varint.
    with pytest.raises(InvalidField) as caught:
        record_of(sent, AT)
    assert caught.value.reason == "UNKNOWN_FIELD"


@given(st.text(max_size=300))
def test_no_name_leads_out_of_a_folder(name: str) -> None:
    try:
        taken = record_of(header(name=name), AT).name
    except InvalidField:
        return
    assert not set(taken) & set("/\\\0")
    assert taken not in ("", ".", "..")
