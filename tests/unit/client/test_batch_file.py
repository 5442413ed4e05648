"""The lines of a batch: read strictly, every fault with its line."""

from pathlib import Path

import pytest

from fastvideo.client.batch_file import InvalidBatch, read_batch
from fastvideo.requests.types import OutputSpec


def written(folder: Path, *lines: str) -> Path:
    path = folder / "batch.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_what_is_left_out_is_as_in_a_single_request(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        '{"prompt": "a red three"}',
        "",
        '{"id": "blue", "prompt": "a blue one", "sampling": {"steps": 4, "seed": 7},'
        ' "outputs": {"video": true, "sheet": true}, "negative_prompt": "grey"}',
    )
    first, second = read_batch(path)
    assert (first.id, first.model, first.outputs) == (
        "000001",
        "moving-digits",
        OutputSpec(video=True),
    )
    assert (second.id, second.sampling.steps, second.sampling.seed) == ("blue", 4, 7)
    assert second.outputs == OutputSpec(video=True, sheet=True)


def test_a_line_that_changes_is_another_request(tmp_path: Path) -> None:
    one, two, again = read_batch(
        written(
            tmp_path,
            '{"id": "a", "prompt": "x", "sampling": {"seed": 1}}',
            '{"id": "b", "prompt": "x", "sampling": {"seed": 1}}',
            '{"id": "c", "prompt": "x", "sampling": {"seed": 2}}',
        )
    )
    assert len({one.digest, two.digest, again.digest}) == 3
    assert (
        read_batch(written(tmp_path, '{"id": "a", "prompt": "x", "sampling": {"seed": 1}}'))[
            0
        ].digest
        == one.digest
    )


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("{", "is not JSON"),
        ("[1]", "is no JSON object"),
        ('"x"', "is no JSON object"),
        ("{}", "prompt"),
        ('{"prompt": 5}', "prompt"),
        ('{"prompt": "x", "promt": "y"}', "promt: unknown field"),
        ('{"prompt": "x", "sampling": {"step": 4}}', "sampling.step: unknown field"),
        ('{"prompt": "x", "sampling": {"steps": "4"}}', "sampling.steps"),
        ('{"prompt": "x", "id": "../x"}', "id"),
        ('{"prompt": "x", "id": ".x"}', "id"),
        ('{"prompt": "x", "id": "a/b"}', "id"),
        ('{"prompt": "x", "image": "absent.png"}', "image: there is no file"),
    ],
)
def test_a_faulty_line_is_told_with_its_number(tmp_path: Path, line: str, fault: str) -> None:
    path = written(tmp_path, '{"prompt": "fine"}', line)
    with pytest.raises(InvalidBatch) as caught:
        read_batch(path)
    assert caught.value.faults.keys() == {"line 2"}
    assert fault in caught.value.faults["line 2"]


def test_all_faulty_lines_are_told_and_none_is_asked(tmp_path: Path) -> None:
    path = written(
        tmp_path, "{}", '{"id": "a", "prompt": "x"}', '{"id": "a", "prompt": "y"}', "nonsense"
    )
    with pytest.raises(InvalidBatch) as caught:
        read_batch(path)
    assert list(caught.value.faults) == ["line 1", "line 3", "line 4"]
    assert "line 2" in caught.value.faults["line 3"]


def test_an_empty_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidBatch, match="has no line"):
        read_batch(written(tmp_path, "", " "))
