"""How a deployment schedules, from its file `scheduling.yaml`; see docs/scheduling.md."""

from pathlib import Path

from fastvideo.errors import InvalidField
from fastvideo.model.documents import InvalidDocument, parse, read_document
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
    try:
        return parse(SchedulingPolicy, document, path.name)
    except InvalidField as error:
        # A knob checks itself.
        raise InvalidDocument(path.name, {error.field: error.message}) from error
