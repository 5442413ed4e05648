"""A running deployment from outside: its card, what it serves by which id, where it would route."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import patient_http as httpx
from tests.e2e.stack import Stack, poll

MODEL = "moving-digits"


@pytest.fixture
def url(stack: Stack) -> str:
    return f"http://{stack.address('gateway-http')}"


@pytest.mark.row("DEP-01", "API-06")
def test_the_card_of_a_running_stack_has_all_its_parts(stack: Stack) -> None:
    stack.generate("a red three", "--steps", "4", "--seed", "7")

    def described() -> Any:
        (engine,) = stack.run("describe", "--json").json["engines"]
        entries = engine["card"]["cost_model"]["entries"]
        return engine if any(one["phase"] == "denoise" for one in entries) else None

    engine = poll("the measured costs", described)
    card, load = engine["card"], engine["load"]
    assert card["engine_id"] == "scheduler-1"
    assert card["model_specs"] == [MODEL]
    assert len(card["card_digests"][MODEL]) == 64
    assert {"text_to_video", "image_to_video"} <= set(card["capabilities"]["capabilities"])
    assert card["role_pools"] == [{"role": "worker", "replicas": 1, "models": [MODEL]}]
    assert {"text_to_video", "image_to_video", "encode_text"} <= set(card["supported_programs"])
    assert card["supported_parallel_plans"] == [{"axes": {}, "mesh_order": []}]
    assert card["cache_events"] == ["trace.cache/text_encoder_output"]
    [endpoint] = card["transfer_endpoints"]
    assert endpoint == {"backend": "grpc", "address": stack.address("worker-1")}
    assert {"grpc.health.v1", "backlog_seconds", "ready_models"} <= set(card["health_schema"])
    assert card["slo_schema"] == {}
    costs = {entry["phase"]: entry for entry in card["cost_model"]["entries"]}
    assert costs["denoise"]["seconds"] > 0
    assert costs["denoise"]["samples"] >= 4
    assert 0 <= costs["denoise"]["relative_error"] <= 1
    assert {one["prior"]["phase"] for one in card["cost_model"]["priors"]} >= {"denoise", "decode"}
    assert load["ready_models"] == [MODEL]
    assert load["compute_slots"] >= 1
    shown = stack.run("describe", stack.gateway)
    assert shown.code == 0
    for word in ("scheduler-1", "text_to_video", "denoise", "samples", "transfer endpoints"):
        assert word in shown.out


@pytest.mark.row("SCH-08")
def test_a_request_is_routed_by_the_prices_of_running_cards(stack: Stack, tmp_path: Path) -> None:
    stack.generate("a red three", "--steps", "4", "--seed", "8")

    def priced() -> Any:
        described = stack.run("describe", "--json")
        entries = described.json["engines"][0]["card"]["cost_model"]["entries"]
        found = [one for one in entries if one["phase"] == "request/text_to_video"]
        return described.out if found else None

    here = tmp_path / "here.json"
    here.write_text(poll("the price of a request", priced))
    offers = json.loads(here.read_text())
    offers["engines"][0]["card"]["engine_id"] = "dearer"
    for entry in offers["engines"][0]["card"]["cost_model"]["entries"]:
        for forward in entry["forwards"]:
            forward["seconds"] *= 3
    there = tmp_path / "there.json"
    there.write_text(json.dumps(offers))
    asked = tmp_path / "request.yaml"
    asked.write_text(f"model: {MODEL}/text_to_video\nprompt: a red three\nsampling: {{steps: 4}}\n")
    cards = ("--card", str(there), "--card", str(here))
    route = stack.run("route", str(asked), *cards, "--json")
    assert route.code == 0, route.err
    assert route.json["engine_id"] == "scheduler-1"
    seconds = {one["engine_id"]: one["device_seconds"] for one in route.json["candidates"]}
    assert seconds["dearer"] == pytest.approx(3 * seconds["scheduler-1"], rel=1e-6)
    live = stack.run("route", str(asked), "--card", str(there), "--gateway", stack.gateway)
    assert f"{stack.gateway}/scheduler-1 is predicted to be done first" in live.out


@pytest.mark.row("API-13")
def test_models_and_programs_are_listed_alike_by_every_door(stack: Stack, url: str) -> None:
    listed = httpx.get(f"{url}/v1/models").json()["data"]
    by_id = {one["id"]: one for one in listed}
    assert len(by_id) == len(listed)
    assert {one["object"] for one in listed} == {"model"}
    assert by_id[MODEL]["kind"] == "model"
    assert by_id[MODEL]["capabilities"] == [
        "text_to_video",
        "image_to_video",
        "latent_scoring",
        "vae_decode",
    ]
    one = by_id[f"{MODEL}/image_to_video"]
    assert (one["kind"], one["root"], one["capabilities"]) == ("program", MODEL, ["image_to_video"])
    assert all(entry["ready"] for entry in listed)
    for name, entry in by_id.items():
        assert httpx.get(f"{url}/v1/models/{name}").json() == entry
    told = stack.run("models", "--json").json
    (model,) = [entry for entry in told if not entry["unavailable_reason"]]
    assert {model["model_id"], *(s["servable_id"] for s in model["servables"])} == set(by_id)
    assert [s for entry in told if entry["unavailable_reason"] for s in entry["servables"]] == []
    assert f"{MODEL}/image_to_video" in stack.run("models").out


@pytest.mark.row("API-13")
def test_what_is_listed_can_be_asked_for_by_its_id(url: str) -> None:
    def sync(model: str, **fields: Any) -> Any:
        body = {"prompt": "a red three", "num_inference_steps": 3, "seed": 3, "model": model}
        headers = {"Accept": "application/json"}
        return httpx.post(
            f"{url}/v1/videos/sync", json=body | fields, headers=headers, timeout=60
        ).json()

    whole, named = sync(MODEL), sync(f"{MODEL}/text_to_video")
    assert named["status"] == "completed"
    assert named["latents_digest"] == whole["latents_digest"]
    for model, status in ((f"{MODEL}/encode_text", 400), (f"{MODEL}/sing", 404)):
        refused = httpx.post(f"{url}/v1/videos", json={"prompt": "x", "model": model})
        assert (refused.status_code, refused.json()["error"]["param"]) == (status, "model")
        assert f"{MODEL}/text_to_video" in refused.json()["error"]["message"]
    without = httpx.post(
        f"{url}/v1/videos", json={"prompt": "x", "model": f"{MODEL}/image_to_video"}
    )
    assert without.status_code == 400


@pytest.mark.row("API-06")
@pytest.mark.parametrize("command", ["validate", "describe", "serve"])
def test_a_folder_that_is_wrong_ends_every_command_with_1_and_names_the_key(
    stack: Stack, tmp_path: Path, command: str
) -> None:
    (tmp_path / "deployment.yaml").write_text(f"models: [{MODEL}]\nschedulers: none\n")
    data = ("--data", str(tmp_path / "data")) if command == "serve" else ()
    refused = stack.run(command, str(tmp_path), *data)
    assert refused.code == 1
    assert "deployment.yaml: schedulers: " in refused.err
    assert not (tmp_path / "data").exists()
