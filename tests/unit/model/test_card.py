import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from fastvideo import wire
from fastvideo.deployment.catalog import FAMILIES
from fastvideo.model.card import card_digest, load_cards, parse_card
from fastvideo.model.documents import InvalidDocument
from fastvideo.model.specs import ComponentKind, ModelSpec

CARDS = FAMILIES / "wan" / "cards"
BASE = "wan2.1-t2v-1.3b"


def documents() -> dict[str, dict[str, Any]]:
    return {path.stem: yaml.safe_load(path.read_text()) for path in CARDS.glob("*.yaml")}


def refused(change: Callable[[dict[str, Any]], None]) -> dict[str, str]:
    """The problems by key of the base card after a change."""
    changed = deepcopy(documents())
    change(changed[BASE])
    with pytest.raises(InvalidDocument) as caught:
        parse_card(BASE, changed)
    assert caught.value.source == f"{BASE}.yaml"
    assert f"{BASE}.yaml" in str(caught.value)
    return caught.value.problems


@pytest.mark.row("MOD-01")
def test_a_card_is_one_typed_spec_with_every_part() -> None:
    card = load_cards(CARDS)[BASE]
    assert card.family == "wan"
    assert [variant.variant_id for variant in card.variants] == ["moving-digits"]
    assert card.components["transformer"].kind is ComponentKind.DIT
    assert set(card.loops) == {"encode", "denoise", "decode", "latent_score", "write"}
    assert "text_to_video" in card.capabilities.capabilities
    assert card.processors["text"].max_tokens == 512
    assert card.parallelism.valid_plans
    assert card.caches["text_features"].eviction_policy == "lru"
    assert card.parity.reference == "diffusers.WanPipeline"
    assert card.training is None
    with pytest.raises(FrozenInstanceError):
        card.family = "other"  # type: ignore[misc]


@pytest.mark.row("MOD-01")
def test_a_card_survives_the_wire() -> None:
    for card in load_cards(CARDS).values():
        assert wire.decode(ModelSpec, wire.encode(card)) == card


def test_a_variant_is_a_diff_of_its_base() -> None:
    cards = load_cards(CARDS)
    base, small = cards[BASE], cards["moving-digits"]
    assert small.loops["denoise"].step_policy == base.loops["denoise"].step_policy
    assert small.components["transformer"].load_id == base.components["transformer"].load_id
    assert small.components["transformer"].config_schema["num_layers"] == "6"
    assert small.sampling["steps"].default_value == 20
    assert small.sampling["steps"].maximum == base.sampling["steps"].maximum


def test_a_null_removes_what_the_base_has() -> None:
    cards = {
        BASE: documents()[BASE],
        "bare": {"base": BASE, "model_id": "bare", "recipe": None},
    }
    with pytest.raises(InvalidDocument) as caught:
        parse_card("bare", cards)
    assert set(caught.value.problems) == {"recipe"}


@pytest.mark.parametrize(
    ("cards", "message"),
    [
        ({"a": {"base": "b"}}, "there is no card 'b'"),
        ({"a": {"base": "b"}, "b": {"base": "a"}}, "is its own base: a -> b -> a"),
    ],
)
def test_a_base_must_exist_and_not_run_in_a_circle(
    cards: dict[str, dict[str, Any]], message: str
) -> None:
    with pytest.raises(InvalidDocument, match=message):
        parse_card("a", cards)


def test_the_digest_depends_on_every_field_and_on_nothing_else() -> None:
    card = load_cards(CARDS)[BASE]
    again = load_cards(CARDS)[BASE]
    assert card_digest(card) == card_digest(again)
    assert len(card_digest(card)) == 64
    other = replace(card, sampling={**card.sampling, "fps": card.sampling["steps"]})
    assert card_digest(other) != card_digest(card)
    reordered = replace(card, sampling=dict(reversed(list(card.sampling.items()))))
    assert card_digest(reordered) == card_digest(card)


def test_unknown_fields_are_refused_by_name() -> None:
    def change(card: dict[str, Any]) -> None:
        card["loops"]["denoise"]["step_policy"]["batch"] = 4
        card["colour"] = "red"

    problems = refused(change)
    assert problems.keys() == {"loops.denoise.step_policy.batch", "colour"}
    meant = "unknown field; did you mean max_batch?"
    assert problems["loops.denoise.step_policy.batch"] == meant
    assert problems["colour"].startswith("unknown field; known: ")


def test_values_are_not_coerced() -> None:
    def change(card: dict[str, Any]) -> None:
        card["loops"]["denoise"]["step_policy"]["max_batch"] = "16"

    assert set(refused(change)) == {"loops.denoise.step_policy.max_batch"}


def test_an_unknown_component_kind_is_refused() -> None:
    def change(card: dict[str, Any]) -> None:
        card["components"]["vae"]["kind"] = "magic"

    assert "'dit'" in refused(change)["components.vae.kind"]


@pytest.mark.row("MOD-02")
def test_a_recipe_that_assumes_an_undeclared_loop_is_refused() -> None:
    def change(card: dict[str, Any]) -> None:
        card["recipe"]["assumes_loop"] = "causal_denoise"

    assert refused(change) == {"recipe.assumes_loop": "'causal_denoise' is not declared in loops"}


@pytest.mark.row("MOD-03")
@pytest.mark.parametrize(
    ("cost", "key"),
    [
        (None, "loops.denoise.cost"),
        ({"phase": "denoise"}, "loops.denoise.cost"),
        ({"base_seconds": 1.0}, "loops.denoise.cost.phase"),
        ({"phase": "denoise", "base_seconds": -1.0}, "loops.denoise.cost"),
    ],
)
def test_a_loop_without_a_price_is_refused(cost: dict[str, Any] | None, key: str) -> None:
    def change(card: dict[str, Any]) -> None:
        loop = card["loops"]["denoise"]
        loop.pop("cost")
        if cost is not None:
            loop["cost"] = cost

    assert key in refused(change)


@pytest.mark.row("MOD-03")
@pytest.mark.parametrize(
    ("phase", "key"),
    [
        ({"unit_kind": "vae_tile", "cost": {"phase": "tile"}}, "cost"),
        ({"unit_kind": "vae_tile", "cost": {"base_seconds": 1.0}}, "cost.phase"),
        (
            {"unit_kind": "vae_tile", "cost": {"phase": "denoise", "base_seconds": 1.0}},
            "cost.phase",
        ),
        ({"unit_kind": "diffusion_step", "cost": {"phase": "x", "base_seconds": 1.0}}, "unit_kind"),
    ],
)
def test_each_kind_of_a_loop_s_units_has_a_price_of_its_own(
    phase: dict[str, Any], key: str
) -> None:
    def change(card: dict[str, Any]) -> None:
        card["loops"]["denoise"]["phases"] = [phase]

    assert set(refused(change)) == {f"loops.denoise.phases.0.{key}"}


@pytest.mark.row("MOD-03")
def test_a_loop_that_is_silent_about_caches_is_refused() -> None:
    def change(card: dict[str, Any]) -> None:
        del card["loops"]["decode"]["cache_contracts"]

    assert "loops.decode.cache_contracts" in refused(change)


@pytest.mark.row("MOD-03")
def test_a_loop_with_an_undeclared_cache_is_refused() -> None:
    def change(card: dict[str, Any]) -> None:
        card["loops"]["decode"]["cache_contracts"] = ["tiles"]

    assert refused(change) == {"loops.decode.cache_contracts": "'tiles' is not declared in caches"}


def set_at(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(card: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        for parent in parents:
            card = card[parent]
        card[last] = value

    return change


@pytest.mark.parametrize(
    ("path", "value", "key"),
    [
        ("model_id", "other", "model_id"),
        ("sampler", "", "sampler"),
        ("capabilities.capabilities", ["time_travel"], "capabilities"),
        ("components.vae.component_id", "decoder", "components.vae.component_id"),
        ("components.vae.load_id", "AutoencoderKLWan", "components.vae.load_id"),
        ("components.vae.config_schema", {"z_dim": "{"}, "components.vae.config_schema.z_dim"),
        ("components.vae.cache_contracts", ["tiles"], "components.vae.cache_contracts"),
        ("components.vae.parity_tests", [{"rung": "C9"}], "components.vae.parity_tests"),
        ("loops.decode.components", ["decoder"], "loops.decode.components"),
        ("loops.decode.loop_id", "other", "loops.decode.loop_id"),
        ("loops.decode.state_schema", "", "loops.decode.state_schema"),
        ("loops.decode.preemption_policy", "never", "loops.decode.preemption_policy"),
        ("loops.decode.valid_parallel_plans", [], "loops.decode.valid_parallel_plans"),
        ("loops.decode.step_policy.max_batch", 0, "loops.decode.step_policy.max_batch"),
        ("loops.decode.step_policy.max_batch", 2, "loops.decode.step_policy.max_batch"),
        ("loops.decode.step_policy.count_from", "", "loops.decode.step_policy.count_from"),
        ("loops.denoise.guidance_policy", "", "loops.denoise.guidance_policy"),
        ("loops", {}, "loops"),
        ("caches.text_features.producers", ["decode"], "caches.text_features.producers"),
        ("caches.text_features.consumers", ["nobody"], "caches.text_features.consumers"),
        ("caches.text_features.key_fields", ["model_id"], "caches.text_features.key_fields"),
        ("caches.text_features.version", "", "caches.text_features.version"),
        ("caches.text_features.contract_id", "x", "caches.text_features.contract_id"),
        ("processors.text.component_id", "words", "processors.text.component_id"),
        ("processors.text.max_tokens", 0, "processors.text"),
        ("sampling.fps.default_value", 0, "sampling.fps.default_value"),
        ("sampling.num_frames.default_value", 80, "sampling.num_frames.default_value"),
        ("sampling.tempo", {"default_value": 0}, "sampling.tempo"),
        ("parity.reference", "", "parity.reference"),
        ("parity.tests", [{"name": "latents", "rung": "C7"}], "parity.tests"),
        ("parity.tests", [{"rung": "C1", "max_abs_difference": -1}], "parity.tests"),
        ("parallelism.valid_plans", [{"axes": {"cfgp": 2}}], "parallelism.valid_plans"),
        ("recipe", None, "recipe"),
    ],
)
def test_a_broken_reference_or_value_is_named(path: str, value: Any, key: str) -> None:
    assert key in refused(set_at(path, value))


def test_a_missing_sampling_field_is_named() -> None:
    def change(card: dict[str, Any]) -> None:
        del card["sampling"]["seed"]

    assert refused(change) == {"sampling.seed": "is missing"}


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "just words"])
def test_a_document_that_is_no_mapping_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(InvalidDocument, match=r"x\.yaml"):
        load_cards(tmp_path)


def test_a_value_that_is_no_plain_data_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("model_id: 2026-01-01\n")
    with pytest.raises(InvalidDocument, match="plain data"):
        load_cards(tmp_path)


@pytest.mark.row("MOD-04")
def test_every_shipped_card_passes() -> None:
    for folder in FAMILIES.glob("*/cards"):
        cards = load_cards(folder)
        assert cards
        assert json.dumps(sorted(cards))
