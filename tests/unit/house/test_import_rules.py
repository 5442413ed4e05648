"""The import rules hold, and each of them can fail."""

import ast
import configparser
import copy
import sys
from pathlib import Path

import pytest

pytest.importorskip("importlinter", reason="import-linter comes with the dev extra")

import grimp
from importlinter.configuration import configure
from importlinter.contracts.forbidden import ForbiddenContract
from importlinter.contracts.independence import IndependenceContract

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "libs" / "fastvideo"
CONFIG = ROOT / ".importlinter"

configure()
CONTRACTS = {"forbidden": ForbiddenContract, "independence": IndependenceContract}
PREFIX = "importlinter:contract:"


@pytest.fixture(scope="module")
def rules() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(CONFIG)
    return parser


@pytest.fixture(scope="module")
def graph(rules: configparser.ConfigParser) -> grimp.ImportGraph:
    roots = rules["importlinter"]["root_packages"].split()
    return grimp.build_graph(
        *roots, include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )


def kept(rules: configparser.ConfigParser, contract: str, graph: grimp.ImportGraph) -> bool:
    """Whether the graph keeps a contract of the file."""
    options = dict(rules[PREFIX + contract])
    modules = {key: value.split() for key, value in options.items() if key.endswith("modules")}
    session = {
        "root_packages": rules["importlinter"]["root_packages"].split(),
        "include_external_packages": "True",
    }
    rule = CONTRACTS[options["type"]](options["name"], session, modules)
    return bool(rule.check(graph, verbose=False).kept)


@pytest.mark.row("LAY-01", "LAY-02", "LAY-04")
def test_the_tree_keeps_every_import_rule(
    rules: configparser.ConfigParser, graph: grimp.ImportGraph
) -> None:
    contracts = [
        section.removeprefix(PREFIX) for section in rules.sections() if section.startswith(PREFIX)
    ]
    assert len(contracts) >= 8
    assert [name for name in contracts if not kept(rules, name, graph)] == []


@pytest.mark.parametrize(
    ("contract", "importer", "imported"),
    [
        ("control-side", "fastvideo.scheduling", "torch"),
        ("control-side", "fastvideo.cli", "fastvideo.engine"),
        ("control-side", "fastvideo_gateway", "fastvideo.models"),
        ("services", "fastvideo_gateway", "fastvideo_scheduler"),
        ("libraries", "fastvideo.local", "fastvideo_gateway"),
        ("training", "fastvideo.engine", "fastvideo.training"),
        ("training", "fastvideo_worker", "fastvideo.training"),
        ("models", "fastvideo.models", "fastvideo.api.common.v1.model_pb2"),
        ("models", "fastvideo.loops", "fastvideo.client"),
        ("worker", "fastvideo_worker", "fastvideo.api.gateway.v1.gateway_pb2"),
        ("specs", "fastvideo.model", "fastvideo.rpc"),
        ("pure-cores", "fastvideo.sessions", "asyncpg"),
        ("foundations", "fastvideo.ids", "fastvideo.wire"),
    ],
)
def test_a_planted_import_breaks_its_rule(
    rules: configparser.ConfigParser,
    graph: grimp.ImportGraph,
    contract: str,
    importer: str,
    imported: str,
) -> None:
    planted = copy.deepcopy(graph)
    if imported not in planted.modules:
        planted.add_module(imported, is_squashed=True)
    planted.add_import(importer=importer, imported=imported)
    assert not kept(rules, contract, planted)


def test_every_room_is_on_one_side_of_the_torch_line(rules: configparser.ConfigParser) -> None:
    section = rules["importlinter:contract:control-side"]
    control = set(section["source_modules"].split())
    worker = set(section["forbidden_modules"].split())
    assert not control & worker
    rooms = {
        f"fastvideo.{path.stem}"
        for path in LIBRARY.iterdir()
        if (path / "__init__.py").exists() or path.suffix == ".py"
    } - {"fastvideo.__init__", "fastvideo.api"}
    assert rooms - control - worker == set(), "name the room in .importlinter, control-side"


@pytest.mark.parametrize("name", ["clock", "errors", "ids"])
def test_foundations_import_the_standard_library_alone(name: str) -> None:
    imported = set()
    for node in ast.walk(ast.parse((LIBRARY / f"{name}.py").read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
    assert imported <= set(sys.stdlib_module_names)
