"""How a deployment schedules, from its file `scheduling.yaml`; see docs/scheduling.md."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastvideo.errors import InvalidField
from fastvideo.model.documents import InvalidDocument, parse, parse_document, read_document
from fastvideo.scheduling.policy import SchedulingPolicy


def read_policy(path: Path) -> SchedulingPolicy:
    """The policy of a YAML or JSON file; what it leaves out is as it is by default.

    Raises InvalidDocument naming the file and each key that is unknown or at fault, also when
    there is no such file.
    """
    try:
        document = read_document(path)
    except OSError as error:
        fault = error.strerror or str(error)
        raise InvalidDocument(path.name, {"file": f"cannot be read: {fault}"}) from error
    return _policy(document, path.name)


def policy_of(text: str, source: str) -> SchedulingPolicy:
    """The policy of YAML or JSON that came from `source`. Raises as `read_policy` does."""
    return _policy(parse_document(text, source), source)


def logged_policy(text: str, source: str) -> SchedulingPolicy:
    """The policy that a log says was in force, as `policy_document` wrote it.

    What a release took is taken from its log for ever, though today the policy would be refused.
    Raises InvalidDocument for a knob that does not exist or is of another type.
    """
    try:
        return policy_of(text, source)
    except InvalidDocument:
        return parse(_Logged, parse_document(text, source), source)


def policy_document(policy: SchedulingPolicy) -> str:
    """All knobs as canonical JSON, which `policy_of` reads: equal for equal policies."""
    return json.dumps(asdict(policy), sort_keys=True, separators=(",", ":"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logged(SchedulingPolicy):
    """A policy whose values were checked when it came into force."""

    def __post_init__(self) -> None:
        """Take it as it is."""


def _policy(document: Mapping[str, Any], source: str) -> SchedulingPolicy:
    try:
        return parse(SchedulingPolicy, document, source)
    except InvalidField as error:
        # A knob checks itself.
        raise InvalidDocument(source, {error.field: error.message}) from error
