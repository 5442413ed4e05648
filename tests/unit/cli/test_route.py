"""`fastvideo route`: cards and a request from files, a choice with its figures."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fastvideo.cli.main import build
from fastvideo.cli.offers import offers_record
from fastvideo.deployment.card import EngineLoad, EngineOffer
from fastvideo.deployment.catalog import Catalog, CatalogEntry
from fastvideo.deployment.offer import deployment_card
from fastvideo.deployment.routed import read_routed
from fastvideo.errors import FastVideoError, InvalidField, NotFound, Unavailable
from fastvideo.model.documents import InvalidDocument
from fastvideo.scheduling.affinity import text_keys
from fastvideo.scheduling.cost import CostEstimator

MODEL = "moving-digits"


@cache
def entry() -> CatalogEntry:
    return Catalog.load().get(MODEL)


def card_file(folder: Path, name: str, seconds: float, **load: Any) -> Path:
    costs = CostEstimator(lambda model, phase: None)
    costs.measure(MODEL, "request/text_to_video", "48x48x9x20/2", 1, seconds)
    costs.measure(MODEL, "request/text_to_video", "48x48x9x20/2", 1, seconds)
    offer = EngineOffer(
        card=deployment_card(name, [entry()], costs=costs.export()),
        load=EngineLoad(**{"compute_slots": 1, "ready_models": (MODEL,), **load}),
    )
    path = folder / f"{name}.json"
    path.write_text(json.dumps(offers_record([offer])))
    return path


def route(*arguments: object) -> str:
    result = CliRunner().invoke(build(), ["route", *map(str, arguments)])
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    path = tmp_path / "request.yaml"
    path.write_text(f"model: {MODEL}\nprompt: a red three\n")
    return path


@pytest.mark.row("SCH-08")
def test_the_choice_is_explained_with_its_figures(tmp_path: Path, asked: Path) -> None:
    cards = [
        "--card",
        card_file(tmp_path, "busy", 1.0, backlog_seconds=9.0),
        "--card",
        card_file(tmp_path, "idle", 2.0),
        "--card",
        card_file(tmp_path, "loading", 1.0, ready_models=()),
    ]
    told = json.loads(route(asked, *cards, "--json"))
    assert told["engine_id"] == "idle"
    by_id = {one["engine_id"]: one for one in told["candidates"]}
    assert by_id["idle"]["total_seconds"] == by_id["idle"]["device_seconds"] == 2.0
    assert by_id["busy"]["total_seconds"] == 10.0
    assert by_id["loading"]["refusal"] == f"{MODEL} is not ready there"
    text = route(asked, *cards)
    for words in ("idle is predicted to be done first", "10 s", "measured", "not ready there"):
        assert words in text


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("model: another\n", NotFound, "known models"),
        (f"model: {MODEL}\ncolour: red\n", InvalidDocument, "colour"),
        (f"model: {MODEL}\nprompt: a three\nsampling: {{steps: 0}}\n", FastVideoError, "steps"),
    ],
)
def test_a_wrong_request_is_refused(
    tmp_path: Path, text: str, error: type[FastVideoError], words: str
) -> None:
    path = tmp_path / "request.yaml"
    path.write_text(text)
    with pytest.raises(error, match=words):
        route(path, "--card", card_file(tmp_path, "a", 1.0))


def test_a_request_that_nobody_can_take_now_says_so(tmp_path: Path, asked: Path) -> None:
    with pytest.raises(Unavailable) as refused:
        route(asked, "--card", card_file(tmp_path, "a", 1.0, ready_models=()))
    assert refused.value.reason == "NO_ENGINE_READY"


def test_without_engines_it_is_said_how_to_name_some(asked: Path) -> None:
    with pytest.raises(InvalidField, match="--card FILE, --gateway HOST:PORT"):
        route(asked)


def test_nothing_is_done_before_it_is_asked(tmp_path: Path, asked: Path) -> None:
    spec = read_routed(asked, Catalog.load()).spec
    warm = card_file(tmp_path, "warm", 0.1, warm_keys=text_keys(spec))
    assert json.loads(route(asked, "--card", warm, "--json"))["candidates"][0]["warm_seconds"] > 0.1
    assert " 0 s " in route(asked, "--card", warm)
    assert "-" not in route(asked, "--card", warm).partition("warm  ")[2]


def test_a_card_that_is_none_is_refused(tmp_path: Path, asked: Path) -> None:
    path = tmp_path / "card.json"
    path.write_text('{"engines": [{"load": {}}]}')
    with pytest.raises(InvalidDocument, match="card"):
        route(asked, "--card", path)
