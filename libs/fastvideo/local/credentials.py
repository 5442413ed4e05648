"""Passwords of the servers: random, made once, in a file that only its owner reads."""

import dataclasses
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from fastvideo.local.errors import DataDamaged
from fastvideo.local.state import write_private


def _password() -> str:
    # Letters, digits, "-" and "_" only: safe in a URL, in SQL quotes and in a configuration file.
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Credentials:
    """Passwords; never shown, logged or handed over on a command line."""

    postgres_superuser: str = field(default_factory=_password, repr=False)
    postgres_app: str = field(default_factory=_password, repr=False)
    nats: str = field(default_factory=_password, repr=False)
    redis: str = field(default_factory=_password, repr=False)


def load_credentials(path: Path) -> Credentials | None:
    """The credentials of an earlier start, None before the first.

    Raises DataDamaged for a file that holds none: the servers' data opens with these alone.
    """
    try:
        return Credentials(**json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        # The cause could hold a piece of the file.
        raise DataDamaged(
            f"{path} holds no credentials ({type(error).__name__}); put back a copy of it, or "
            "start with another --data folder",
            subject=str(path),
        ) from None


def ensure_master_key(path: Path) -> None:
    """Make the key of tenants' keys, unless it is there (0600). Losing it loses their texts."""
    if not path.exists():
        write_private(path, f"{secrets.token_hex(32)}\n")


def make_credentials(path: Path) -> Credentials:
    """New credentials, written to the file (0600)."""
    credentials = Credentials()
    write_private(path, json.dumps(dataclasses.asdict(credentials)))
    return credentials
