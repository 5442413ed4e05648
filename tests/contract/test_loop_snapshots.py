"""Every kernel's state, saved at each boundary, goes on in another process with equal bits."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fastvideo.loops.contract import StepContext
from fastvideo.loops.runner import run_loop
from fastvideo.loops.snapshot_format import Saved, SnapshotMismatch, decode, encode
from fastvideo.loops.snapshots import load_state, save_state
from fastvideo.loops.suite import LoopCase, check_loop
from fastvideo.model.caching import CacheClass, CacheLookup, CacheOutcome
from fastvideo.requests.behavior import behavior_id_of
from fastvideo.requests.types import Capture, OutputSpec
from fastvideo.scheduling.work import LoopRef
from tests.contract.loop_cases import LOOP_IDS, case_of, kernel_of
from tests.contract.loop_driving import drive_on
from tests.parity.wan import embedded_model

ROOT = Path(__file__).parents[2]
LOOP = LoopRef(request_id="r", node_id="n", attempt=1)


def start(loop_id: str) -> tuple[Any, Any]:
    """A kernel and its fresh state."""
    kernel, case = kernel_of(loop_id), case_of(loop_id)
    return kernel, kernel.init_state(LOOP, case.request, case.inputs, embedded_model())


@pytest.mark.row("LOOP-06")
def test_loops_saved_at_any_boundary_go_on_in_a_fresh_process_with_equal_bits(
    tmp_path: Path,
) -> None:
    expected: dict[str, list[str]] = {}
    with torch.no_grad():
        for loop_id in LOOP_IDS:
            kernel, state = start(loop_id)
            versions: list[int] = []

            def save(state: Any, kernel: Any = kernel, versions: list[int] = versions) -> None:
                path = tmp_path / f"{kernel.spec.loop_id}-{state.version}.snapshot"
                path.write_bytes(save_state(kernel, state))
                versions.append(state.version)

            digests = drive_on(kernel, state, embedded_model(), save)
            for version in versions:
                expected[f"{loop_id}-{version}"] = digests[version:]
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.resume_elsewhere", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.keys() == expected.keys()
    assert len(found) > 15
    for name, digests in expected.items():
        assert found[name] == digests, name


def test_the_writer_of_files_keeps_the_contract() -> None:
    case = case_of("write")
    report = check_loop(kernel_of("write"), embedded_model(), [case, case])
    assert report.units == (3, 3)


def test_the_writer_records_behavior_once_it_is_stored_wherever_it_goes_on() -> None:
    model, case = embedded_model(), case_of("encode")
    outputs = OutputSpec(latents=True, capture=Capture.BEHAVIOR)
    sampling = replace(case.request.sampling, sampler="flow_sde", noise_level=0.5)
    request = replace(case.request, outputs=outputs, sampling=sampling)
    inputs: dict[str, Any] = dict(run_loop(kernel_of("encode"), request, {}, model).values)
    inputs |= run_loop(kernel_of("denoise"), request, inputs, model).values
    looked = CacheLookup(
        cache_class=CacheClass.TEXT_ENCODER_OUTPUT, key_digest="k", outcome=CacheOutcome.HIT
    )
    given = {name: inputs[name] for name in ("latents", "trajectory")}
    given["cache_lookups"] = (looked,)
    told: list[StepContext] = []

    def make_context() -> StepContext:
        told.append(StepContext())
        return told[-1]

    write = LoopCase(request=request, inputs=given)
    report = check_loop(kernel_of("write"), model, [write, write], make_context)
    assert report.units == (2, 2)
    noted: list[Any] = [note for context in told for note in context.notes]
    # Two units a run, and the second one tells.
    assert len(noted) == len(told) // 2
    assert {note.behavior_id for note in noted} == {behavior_id_of("r", "denoise", 0)}
    assert len({(note.record.trajectory_digest, note.record.logprobs) for note in noted}) == 1
    assert all(note.record.cache_assumptions == (looked,) for note in noted)
    assert all(len(note.record.artifact_references) == 2 for note in noted)


@pytest.mark.parametrize("loop_id", LOOP_IDS)
def test_a_tensor_of_another_shape_is_refused(loop_id: str) -> None:
    kernel, state = start(loop_id)
    saved = decode(save_state(kernel, state))
    names = [name for name, part in saved.parts.items() if isinstance(part, torch.Tensor)]
    for name in names:
        # Another number of dimensions suits no field of any kernel.
        parts = {**saved.parts, name: saved.parts[name][None]}
        with pytest.raises(SnapshotMismatch):
            load_state(kernel, _with(saved, parts=parts), LOOP, state.request, embedded_model())


@pytest.mark.parametrize("loop_id", LOOP_IDS)
def test_a_snapshot_of_another_loop_schema_or_shape_of_fields_is_refused(loop_id: str) -> None:
    kernel, state = start(loop_id)
    saved = decode(save_state(kernel, state))
    parts = dict(saved.parts)
    lost = next(iter(parts))
    wrong = {
        "loop_id": _with(saved, loop_id="another"),
        "schema": _with(saved, schema="another.v9"),
        "kind": _with(saved, kind="outputs"),
        "fields": _with(saved, parts={n: p for n, p in parts.items() if n != lost}),
    }
    for subject, other in wrong.items():
        with pytest.raises(SnapshotMismatch) as caught:
            load_state(kernel, other, LOOP, state.request, embedded_model())
        assert caught.value.reason == "SNAPSHOT_MISMATCH"
        assert caught.value.subject == subject


def _with(saved: Saved, **changes: Any) -> Saved:
    """A snapshot with something else in it, through its bytes."""
    fields: dict[str, Any] = {
        "kind": saved.kind,
        "loop_id": saved.loop_id,
        "schema": saved.schema,
        "version": saved.version,
        "parts": saved.parts,
    }
    return decode(encode(Saved(**(fields | changes))))
