"""The doors: from what a caller shows to who it is, for as long as it is good."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

from fastvideo.clock import Clock
from fastvideo.errors import InvalidField, Unauthenticated, Unavailable
from fastvideo.requests.tenant_state import ApiKey
from fastvideo.rpc.api_keys import ApiToken, bearer_of
from fastvideo.rpc.identity import ANYBODY, DEFAULT_TENANT, Caller, Role
from fastvideo.rpc.outgoing import AUTHORIZATION
from fastvideo.rpc.server import CONCURRENT_RPCS_MAX
from fastvideo_gateway.access.directory import TenantDirectory
from fastvideo_gateway.places import Places

# What the secret of a key that does not exist is compared with: no text has this hash.
_NO_HASH: Final = "0" * 64


class Door(Protocol):
    """Lets callers in."""

    @property
    def is_open(self) -> bool:
        """Whether everybody is let in, without a key."""
        ...

    def caller_of(self, shown: str) -> Caller:
        """Who shows a credential, which may be empty. Raises Unauthenticated, Unavailable."""
        ...

    def check_still(self, caller: Caller) -> None:
        """Raise Unauthenticated or Unavailable when who was let in would not be by now."""
        ...


class OpenDoor:
    """Lets everybody in, as an operator of the default tenant."""

    is_open: Final = True

    def caller_of(self, shown: str) -> Caller:
        """The one caller that there is."""
        return ANYBODY

    def check_still(self, caller: Caller) -> None:
        """An open door stays open."""

    @asynccontextmanager
    async def entering(self, metadata: Mapping[str, str]) -> AsyncIterator[Caller]:
        """The one caller that there is."""
        yield ANYBODY


@dataclass(frozen=True, slots=True)
class AdminKey:
    """The operator's key that a deployment mounts; the log knows nothing of it."""

    key_id: str
    secret_sha256: str

    @classmethod
    def read(cls, variable: str, path: Path) -> "AdminKey":
        """The key of a file. Raises InvalidField naming the variable; never what the file has."""
        try:
            token = ApiToken.parse(path.read_text().strip())
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidField(variable, str(path), "a file that can be read") from error
        if token is None:
            allowed = "a file with one key, fv_...; `fastvideo keys admin FILE` makes one"
            raise InvalidField(variable, str(path), allowed)
        return cls(token.key_id, token.secret_sha256)


class KeyDoor:
    """Lets in whoever shows a good key."""

    is_open: Final = False

    def __init__(
        self,
        directory: TenantDirectory,
        admin: AdminKey | None,
        clock: Clock,
        *,
        share: float = 1.0,
    ) -> None:
        self._directory = directory
        self._admin = admin
        self._clock = clock
        self._places = Places("calls", CONCURRENT_RPCS_MAX, share, "end some")

    def caller_of(self, shown: str) -> Caller:
        """Who a key belongs to.

        Raises Unauthenticated with the reason KEY_REQUIRED, KEY_UNKNOWN, KEY_REVOKED or
        KEY_EXPIRED. A key that does not exist and a wrong secret are the same to who shows them;
        that a key was revoked or ran out is told to who has its secret.
        """
        if not shown:
            raise Unauthenticated(
                "a key is required: in the header Authorization, of the scheme Bearer",
                reason="KEY_REQUIRED",
            )
        token = ApiToken.parse(shown)
        if token is None:
            raise _unknown()
        if self._admin is not None and token.key_id == self._admin.key_id:
            if not token.opens(self._admin.secret_sha256):
                raise _unknown()
            return Caller(tenant_id=DEFAULT_TENANT, role=Role.OPERATOR, key_id=token.key_id)
        key = self._directory.key(token.key_id)
        if not token.opens(_NO_HASH if key is None else key.secret_sha256) or key is None:
            raise _unknown()
        _check_good(key, self._clock.now())
        return Caller(tenant_id=key.tenant_id, role=Role(key.role), key_id=key.key_id)

    def check_still(self, caller: Caller) -> None:
        """Raise Unauthenticated when the caller's key has been revoked or has run out.

        Raises Unavailable when that is not known here any more.
        """
        key = self._directory.key(caller.key_id)
        if key is not None:
            _check_good(key, self._clock.now())

    @asynccontextmanager
    async def entering(self, metadata: Mapping[str, str]) -> AsyncIterator[Caller]:
        """The caller of a call over gRPC. What still runs when its key ends, ends with it."""
        caller = self.caller_of(bearer_of(metadata.get(AUTHORIZATION, "")))
        key = self._directory.key(caller.key_id)
        running = asyncio.timeout(_left_s(key, self._clock.now()))

        def on_key() -> None:
            try:
                self.check_still(caller)
            except (Unauthenticated, Unavailable):
                if not running.expired():
                    running.reschedule(asyncio.get_running_loop().time())

        try:
            async with running:
                with (
                    self._places.taken(caller.tenant_id),
                    self._directory.listening(caller.key_id, on_key),
                ):
                    yield caller
        except TimeoutError:
            if not running.expired():
                raise
            self.check_still(caller)
            raise _expired() from None


def _left_s(key: ApiKey | None, now: datetime) -> float | None:
    """For how long a key is good; None is for ever."""
    if key is None or key.expires_at is None:
        return None
    return (key.expires_at - now).total_seconds()


def _check_good(key: ApiKey, now: datetime) -> None:
    if key.revoked_at is not None:
        raise Unauthenticated("the key was revoked; ask for another", reason="KEY_REVOKED")
    if key.has_expired(now):
        raise _expired()


def _expired() -> Unauthenticated:
    return Unauthenticated("the key has expired; ask for another", reason="KEY_EXPIRED")


def _unknown() -> Unauthenticated:
    return Unauthenticated("the key is not known here", reason="KEY_UNKNOWN")
