"""How people come in, as the gateway is told."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from fastvideo.clock import Clock
from fastvideo.errors import InvalidField
from fastvideo_gateway.access.directory import TenantDirectory
from fastvideo_gateway.access.door import AdminKey, KeyDoor, OpenDoor
from fastvideo_gateway.places import TENANT_SHARE

AUTH: Final = "FASTVIDEO_AUTH"
ADMIN_KEY_FILE: Final = "FASTVIDEO_ADMIN_KEY_FILE"
SHARE: Final = "FASTVIDEO_TENANT_SHARE"

LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]", "::1")
"""Hosts that nobody but this machine reaches."""


class Auth(StrEnum):
    """Whether a key is asked for."""

    OPEN = "open"
    KEYS = "keys"


@dataclass(frozen=True)
class AccessConfig:
    """Open for whoever is on this machine, or for those who have keys."""

    auth: Auth = Auth.OPEN
    # A file with an operator's key.
    admin_key_file: Path | None = None
    # How much of the gateway's places one tenant may have, where there are several.
    tenant_share: float = TENANT_SHARE

    @property
    def share(self) -> float:
        """How much of all places one tenant may have; all of them where everybody is one."""
        return 1.0 if self.auth is Auth.OPEN else self.tenant_share

    def door(self, directory: TenantDirectory, clock: Clock) -> OpenDoor | KeyDoor:
        """The door of both listeners. Raises InvalidField for a file that holds no key."""
        if self.auth is Auth.OPEN:
            return OpenDoor()
        path = self.admin_key_file
        admin = None if path is None else AdminKey.read(ADMIN_KEY_FILE, path)
        return KeyDoor(directory, admin, clock, share=self.share)


def is_loopback(listen: str) -> bool:
    """Whether "host:port" is for this machine alone."""
    return listen.rpartition(":")[0] in LOOPBACK


def access_of(
    given: str,
    admin_key_file: Path | None,
    listens: Sequence[str],
    tenant_share: float = TENANT_SHARE,
) -> AccessConfig:
    """What FASTVIDEO_AUTH and its like say; an empty `given` is open.

    Raises InvalidField for an open gateway that others than this machine reach: whoever could
    connect would be its operator.
    """
    if not 0 < tenant_share <= 1:
        raise InvalidField(SHARE, tenant_share, "more than 0, and at most 1, which is all")
    if given and given not in tuple(Auth):
        raise InvalidField(AUTH, given, " or ".join(Auth))
    auth = Auth(given or Auth.OPEN)
    for listen in listens:
        if auth is Auth.OPEN and listen and not is_loopback(listen):
            allowed = (
                f"{Auth.KEYS}, since the gateway listens on {listen}, which others reach too; "
                f"set {AUTH}={Auth.KEYS} and {ADMIN_KEY_FILE}, or listen on 127.0.0.1"
            )
            raise InvalidField(AUTH, auth.value, allowed)
    return AccessConfig(auth, admin_key_file, tenant_share)
