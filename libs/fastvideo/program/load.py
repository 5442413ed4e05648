"""Programs as data: read from a family's YAML file."""

from collections.abc import Iterable
from pathlib import Path

from fastvideo.model.documents import InvalidDocument, parse, read_document
from fastvideo.model.specs import ModelSpec
from fastvideo.program.specs import ProgramSpec
from fastvideo.program.validation import card_program_problems, program_problems


def load_programs(path: Path) -> dict[str, ProgramSpec]:
    """The programs of a file by id, each validated by itself.

    Raises InvalidDocument naming the file and each key that is at fault.
    """
    data = read_document(path)
    entries = data.get("programs")
    if set(data) != {"programs"} or not isinstance(entries, list):
        raise InvalidDocument(path.name, {"programs": "the file holds one list, programs"})
    programs: dict[str, ProgramSpec] = {}
    problems: dict[str, str] = {}
    for index, entry in enumerate(entries):
        program = parse(ProgramSpec, entry, f"{path.name}: programs.{index}")
        key = f"programs.{program.program_id or index}"
        if program.program_id in programs:
            problems[key] = "is there twice"
        problems.update({f"{key}.{at}": fault for at, fault in program_problems(program).items()})
        programs[program.program_id] = program
    problems.update(_default_problems(programs))
    if problems:
        raise InvalidDocument(path.name, problems)
    return programs


def programs_for(programs: dict[str, ProgramSpec], card: ModelSpec) -> dict[str, ProgramSpec]:
    """The programs whose capability a card's model has."""
    able = card.capabilities.capabilities
    return {name: program for name, program in programs.items() if program.capability in able}


def check_served(programs: dict[str, ProgramSpec], cards: Iterable[ModelSpec], source: str) -> None:
    """Check that each program of a family is one that some card of it can run.

    Raises InvalidDocument naming the file and each program that nobody runs.
    """
    able = {capability for card in cards for capability in card.capabilities.capabilities}
    problems = {
        f"programs.{name}.capability": f"{program.capability!r} is no capability of any card"
        for name, program in programs.items()
        if program.capability not in able
    }
    if problems:
        raise InvalidDocument(source, problems)


def check_programs(programs: dict[str, ProgramSpec], card: ModelSpec, source: str) -> None:
    """Check that a card's model can run the programs.

    Raises InvalidDocument naming the file and each key that is at fault.
    """
    problems = {
        f"programs.{program.program_id}.{key}": fault
        for program in programs.values()
        for key, fault in card_program_problems(program, card).items()
    }
    if problems:
        raise InvalidDocument(source, problems)


def _default_problems(programs: dict[str, ProgramSpec]) -> dict[str, str]:
    problems = {}
    kinds = {program.request_kind for program in programs.values()}
    for kind in sorted(kinds):
        defaults = [p for p in programs.values() if p.request_kind is kind and p.is_default]
        if len(defaults) != 1:
            problems[f"programs.{kind.value}"] = f"has {len(defaults)} default programs; allowed: 1"
    return problems
