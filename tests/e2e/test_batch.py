"""A batch from a file into a folder: failures, a killed client, a killed gateway, another run."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.stack import Stack, poll


def lines(path: Path, *items: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


def item(name: str, seed: int, **sampling: Any) -> dict[str, Any]:
    return {"id": name, "prompt": "a red three", "sampling": {"steps": 3, "seed": seed, **sampling}}


def noted(folder: Path) -> list[str]:
    path = folder / "manifest.jsonl"
    if not path.exists():
        return []
    return [json.loads(line)["id"] for line in path.read_text().splitlines()[1:]]


@pytest.mark.row("API-25")
def test_one_that_is_refused_harms_no_other_and_all_else_is_written(
    stack: Stack, tmp_path: Path
) -> None:
    file = lines(
        tmp_path / "batch.jsonl",
        item("one", 1),
        item("wrong", 2, width=47),
        {**item("sheet", 3), "outputs": {"video": True, "sheet": True}},
        {**item("unknown", 4), "model": "no-such-model"},
    )
    out = tmp_path / "out"
    done = stack.run("batch", str(file), "--out", str(out), "--json")
    assert done.code == 1, done.err
    results = {one["id"]: one for one in done.json["items"]}
    assert list(results) == ["one", "wrong", "sheet", "unknown"]
    assert {name: one["status"] for name, one in results.items()} == {
        "one": "completed",
        "wrong": "refused",
        "sheet": "completed",
        "unknown": "refused",
    }
    assert results["wrong"]["error"]["subject"] == "sampling.width"
    assert results["unknown"]["error"]["reason"] == "MODEL_NOT_FOUND"
    assert sorted(path.name for path in out.iterdir()) == [
        "manifest.jsonl",
        "one.video.mp4",
        "sheet.sheet.png",
        "sheet.video.mp4",
    ]
    assert (out / "one.video.mp4").read_bytes()[4:8] == b"ftyp"

    # A second run asks nobody for what is done.
    again = stack.run("batch", str(file), "--out", str(out), "--json")
    assert [one["request_id"] for one in again.json["items"]] == [
        one["request_id"] for one in done.json["items"]
    ]
    assert len(noted(out)) == 4


def test_a_killed_client_goes_on_where_it_was(stack: Stack, tmp_path: Path) -> None:
    items = [item(f"i{seed}", seed, steps=30) for seed in range(8)]
    file, out = lines(tmp_path / "batch.jsonl", *items), tmp_path / "out"
    command = ("batch", str(file), "--out", str(out), "--at-once", "3")
    first = stack.start(*command)
    poll("two items", lambda: True if len(noted(out)) >= 2 else None)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    before = noted(out)
    assert 2 <= len(before) < 8
    # The line that it was writing when it died.
    with (out / "manifest.jsonl").open("a") as manifest:
        manifest.write('{"id": "torn')
    submitted = len(stack.run("request", "list", "--json", "--limit", "200").json)
    done = stack.run(*command, "--json")
    assert done.code == 0, done.err
    assert [one["status"] for one in done.json["items"]] == ["completed"] * 8
    assert len({one["request_id"] for one in done.json["items"]}) == 8
    # What was asked before the kill was found again: eight requests, not more.
    after = len(stack.run("request", "list", "--json", "--limit", "200").json)
    assert after - submitted <= 8 - len(before)
    assert noted(out)[: len(before)] == before


def test_a_line_that_changed_is_asked_anew(stack: Stack, tmp_path: Path) -> None:
    file, out = tmp_path / "batch.jsonl", tmp_path / "out"
    command = ("batch", str(file), "--out", str(out), "--json")
    lines(file, item("a", 1))
    first = stack.run(*command).json["items"][0]
    lines(file, item("a", 2))
    second = stack.run(*command).json["items"][0]
    assert second["request_id"] != first["request_id"]
    assert second["latents_digest"] != first["latents_digest"]


def test_a_faulty_file_asks_nobody(stack: Stack, tmp_path: Path) -> None:
    file = tmp_path / "batch.jsonl"
    file.write_text('{"prompt": "x"}\n{"prompt": 5}\n')
    done = stack.run("batch", str(file), "--out", str(tmp_path / "out"))
    assert done.code == 1
    assert "line 2" in done.err
    assert not (tmp_path / "out").exists()


def test_a_folder_of_something_else_is_refused(stack: Stack, tmp_path: Path) -> None:
    file = lines(tmp_path / "batch.jsonl", item("a", 1))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.jsonl").write_text("something else\n")
    done = stack.run("batch", str(file), "--out", str(tmp_path / "out"))
    assert done.code == 1
    assert "not the manifest of a batch" in done.err
