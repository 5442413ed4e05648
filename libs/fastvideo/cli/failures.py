"""How a command ends when it does not end well: one line on standard error and an exit code.

With --json the error is on standard output as well, as one JSON object with the key `error`: what
reads the output of a command never has to do without JSON.
"""

import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from fastvideo.cli.config import wants_traceback
from fastvideo.errors import Cancelled, ContractViolation, FastVideoError

EXIT_FAILED = 1
EXIT_NO_ANSWER = 2
EXIT_INTERRUPTED = 130


@contextmanager
def told_apart(*, as_json: bool) -> Iterator[None]:
    """For a command whose exit code 1 is its answer, such as that something differs.

    What keeps it from answering ends it with 2.
    """
    try:
        yield
    except Exception as error:
        code = report(error, as_json=as_json, with_traceback=wants_traceback(os.environ))
        raise typer.Exit(code if code == EXIT_INTERRUPTED else EXIT_NO_ANSWER) from error


def report(error: BaseException, *, as_json: bool = False, with_traceback: bool = False) -> int:
    """Tell an error to the user and give the exit code.

    A FastVideoError is told as it is. Anything else is a fault of the program: its kind is
    told, and its stack only when asked for.
    """
    if as_json:
        print(json.dumps({"error": record(error)}), flush=True)  # noqa: T201
    if isinstance(error, KeyboardInterrupt):
        tell("interrupted")
        return EXIT_INTERRUPTED
    if isinstance(error, FastVideoError):
        tell(f"error: {sentence(error)}")
        _tell_log(error)
        return EXIT_INTERRUPTED if isinstance(error, Cancelled) else EXIT_FAILED
    if isinstance(error, OSError):
        named = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        tell(f"error: {named}")
        return EXIT_FAILED
    tell(f"error: {type(error).__name__}: {error} (set FASTVIDEO_TRACEBACK=1 to see where)")
    if with_traceback:
        traceback.print_exception(error)
    return EXIT_FAILED


def _tell_log(error: FastVideoError) -> None:
    """The last lines of a part of the local stack that failed, and where all of them are."""
    for line in error.attributes.get("tail", "").splitlines():
        tell(f"  {line}")
    if log := error.attributes.get("log"):
        tell(f"  log: {log}")


def record(error: BaseException) -> dict[str, object]:
    """The error as JSON, with the keys that the error of a failed request has."""
    if isinstance(error, FastVideoError):
        return {
            "reason": error.reason,
            "message": error.message,
            "subject": error.subject,
            "attributes": error.attributes,
        }
    interrupted = isinstance(error, KeyboardInterrupt)
    return {
        "reason": "INTERRUPTED" if interrupted else "INTERNAL",
        "message": "interrupted" if interrupted else f"{type(error).__name__}: {error}",
        "subject": "",
        "attributes": {},
    }


def sentence(error: FastVideoError) -> str:
    """The error in one line: what is wrong, with what, and what is allowed; faults of a file in
    a line each."""
    if isinstance(error, ContractViolation):
        # Faults of a file, one a line.
        return error.message
    parts = [" ".join(error.message.split())]
    if error.subject and error.subject not in error.message:
        parts.append(f"({error.subject})")
    allowed = error.attributes.get("allowed", "")
    if allowed and allowed not in error.message:
        parts.append(f"[allowed: {allowed}]")
    return " ".join(parts)


def counted(number: int, word: str) -> str:
    """A number of things."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def tell(line: str) -> None:
    """One line on standard error."""
    print(line, file=sys.stderr, flush=True)  # noqa: T201
