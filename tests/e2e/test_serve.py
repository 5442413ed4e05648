"""`fastvideo serve DIR`: from a project's files to its videos, and a clean end."""

import json
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.e2e import patient_http as httpx
from tests.e2e.stack import START_S_MAX, Stack, poll

pytestmark = [pytest.mark.timeout(300), pytest.mark.slow]
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "moving-digits"


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="fastvideo-serve-"))
    # As root, Postgres runs as a user of its own and must pass through.
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.mark.row("API-06", "API-13", "CNF-01", "CNF-02", "CNF-03", "CNF-04", "CNF-05")
def test_a_folder_is_served_as_its_files_say_until_it_is_interrupted(place: Path) -> None:
    project = Path(shutil.copytree(EXAMPLE, place / "project"))
    programs = yaml.safe_load((project / "programs.yaml").read_text())
    (plain,) = programs["programs"]
    workflow = {**plain, "program_id": "digits_flow", "kind": "workflow", "is_default": False}
    (project / "programs.yaml").write_text(yaml.safe_dump({"programs": [plain, workflow]}))
    deployment = {
        "models": ["my-digits", "moving-digits"],
        "threads": 1,
        "scheduling": {"slo_classes": {"interactive": {"priority_min": 10, "target_seconds": 2.0}}},
    }
    (project / "deployment.yaml").write_text(yaml.safe_dump(deployment))
    stack = Stack(place / "data")
    serving = stack.start("serve", str(project), "--data", str(stack.data))
    try:
        deadline = time.monotonic() + START_S_MAX
        assert serving.stdout is not None
        told = ""
        while "data  " not in told:
            line = serving.stdout.readline()
            assert line, serving.stderr.read() if serving.stderr else ""
            assert time.monotonic() < deadline
            told += line
        url = f"http://{stack.address('gateway-http')}"
        assert f"probe {url}/health/ready" in told
        assert httpx.get(f"{url}/health/ready").status_code == 200

        def listed() -> dict[str, dict[str, object]] | None:
            found = httpx.get(f"{url}/v1/models").json()["data"]
            by_id = {one["id"]: one for one in found}
            return by_id if all(one["ready"] for one in found) else None

        by_id = poll("the models are ready", listed, timeout_s=60)
        assert {"my-digits", "moving-digits", "my-digits/digits_flow"} <= set(by_id)
        flow = by_id["my-digits/digits_flow"]
        assert (flow["object"], flow["kind"], flow["root"]) == ("model", "workflow", "my-digits")
        assert flow["capabilities"] == ["text_to_video"]

        def made(model: str) -> dict[str, object]:
            body = {"prompt": "a red three", "seed": 7, "model": model}
            answer = httpx.post(
                f"{url}/v1/videos/sync",
                json=body,
                headers={"Accept": "application/json"},
                timeout=60,
            )
            video: dict[str, object] = answer.json()
            assert video["status"] == "completed", video
            return video

        whole, by_flow = made("my-digits"), made("my-digits/digits_flow")
        # The default of the project's own card.
        assert whole["num_inference_steps"] == by_flow["num_inference_steps"] == 12
        assert whole["latents_digest"] == by_flow["latents_digest"]
        (engine,) = stack.run("describe", "--json").json["engines"]
        assert set(engine["card"]["model_specs"]) == {"my-digits", "moving-digits"}
        assert engine["card"]["slo_schema"] == {"interactive": 2.0}
        assert "digits_flow" in engine["card"]["supported_programs"]
        assert engine["card"]["supported_parallel_plans"] == [{"axes": {}, "mesh_order": []}]
        # What runs has every value of model, loops and parallel, as the digest of all says.
        described = stack.run("describe", str(project), "--json").json
        assert engine["card"]["card_digests"]["my-digits"] == described["card_digest"]
        changed = Path(shutil.copytree(project, place / "changed"))
        loops = (changed / "loops.yaml").read_text()
        (changed / "loops.yaml").write_text(loops.replace("max_batch: 8", "max_batch: 7"))
        other = stack.run("describe", str(changed), "--json").json
        assert other["card_digest"] != described["card_digest"]
        replayed = stack.run("replay", "execution", str(whole["id"]), "--json")
        assert replayed.code == 0, replayed.err
    finally:
        serving.send_signal(signal.SIGINT)
        code = serving.wait(timeout=60)
        out, err = serving.communicate()
    assert (code, out.strip().endswith("stopped")) == (0, True), (out, err)
    assert stack.run("status").code == 3
    assert json.loads((stack.data / "served-policy.json").read_text())["slo_classes"]
