"""Cards: model families as data, read from YAML, content-addressed.

A card is one file. With `base: <model id>` a file holds only what differs from another card
of its folder: mappings are merged key by key, every other value replaces the base's, and a
null removes a key.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastvideo.model.canonical import canonical_digest
from fastvideo.model.documents import InvalidDocument, parse, read_document
from fastvideo.model.specs import ModelSpec
from fastvideo.model.validation import card_problems


def load_cards(folder: Path) -> dict[str, ModelSpec]:
    """Every card of a folder by its model id, validated.

    Raises InvalidDocument naming the file and each key that is at fault.
    """
    documents = {path.stem: read_document(path) for path in sorted(folder.glob("*.yaml"))}
    return {stem: parse_card(stem, documents) for stem in documents}


def parse_card(stem: str, documents: Mapping[str, Mapping[str, Any]]) -> ModelSpec:
    """The card of a document; `documents` holds those that it may be based on, by file stem.

    Raises InvalidDocument naming the file and each key that is at fault.
    """
    source = f"{stem}.yaml"
    data = _resolve(stem, documents, ())
    card = parse(ModelSpec, data, source)
    problems = dict(_undeclared_caches(data))
    if card.model_id != stem:
        problems["model_id"] = f"is {card.model_id!r}; the file's name says {stem!r}"
    problems.update(card_problems(card))
    if problems:
        raise InvalidDocument(source, problems)
    return card


def card_document(folder: Path, stem: str) -> dict[str, Any]:
    """A card of a folder as plain data, with all that it takes from its bases.

    Raises InvalidDocument when a base is missing.
    """
    documents = {path.stem: read_document(path) for path in sorted(folder.glob("*.yaml"))}
    return _resolve(stem, documents, ())


def card_digest(card: ModelSpec) -> str:
    """The card's content digest: SHA-256 of its canonical encoding."""
    return canonical_digest(card)


def _resolve(
    stem: str, documents: Mapping[str, Mapping[str, Any]], seen: tuple[str, ...]
) -> dict[str, Any]:
    source = f"{seen[0] if seen else stem}.yaml"
    if stem in seen:
        raise InvalidDocument(source, {"base": f"is its own base: {' -> '.join((*seen, stem))}"})
    if stem not in documents:
        raise InvalidDocument(source, {"base": f"there is no card {stem!r}"})
    own = {key: value for key, value in documents[stem].items() if key != "base"}
    base = documents[stem].get("base")
    if base is None:
        return own
    return merge_cards(_resolve(str(base), documents, (*seen, stem)), own)


def merge_cards(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A document over another: mappings key by key, a null removes, the rest replaces."""
    merged = dict(base)
    for key, value in change.items():
        under = merged.get(key)
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, Mapping) and isinstance(under, Mapping):
            merged[key] = merge_cards(under, value)
        else:
            merged[key] = value
    return merged


def _undeclared_caches(data: Mapping[str, Any]) -> Mapping[str, str]:
    # An empty list is a declaration; silence is not.
    return {
        f"loops.{loop_id}.cache_contracts": "is not declared; write [] when the loop has no cache"
        for loop_id, loop in data.get("loops", {}).items()
        if "cache_contracts" not in loop
    }
