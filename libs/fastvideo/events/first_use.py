"""Idempotency keys: what a key was first used for, and whether a repeat means the same.

A key is kept by the log, as the result of the append that it guards. The guarded event's id is
derived from the key, so that a repeat is found without writing.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from fastvideo.errors import AlreadyExists, InvalidField
from fastvideo.events.records import AppendCommand, AppendResult
from fastvideo.ids import derived_id

KEY_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class FirstUse:
    """The thing that a key made, and the digest of what was asked for."""

    subject_id: str
    digest: str

    def encode(self) -> bytes:
        """As the result of an append."""
        return f"{self.subject_id} {self.digest}".encode()

    @classmethod
    def of(cls, result: AppendResult) -> "FirstUse":
        """What the result of an append under the key tells.

        Raises AlreadyExists, IDEMPOTENCY_KEY_EXPIRED, for a key that made something so long ago
        that the log has forgotten what.
        """
        if not result.result:
            raise AlreadyExists(
                "the idempotency key was used longer ago than keys are kept; use a new key",
                reason="IDEMPOTENCY_KEY_EXPIRED",
                subject="idempotency_key",
            )
        subject_id, _, digest = result.result.decode().partition(" ")
        return cls(subject_id, digest)

    def require_same(self, digest: str) -> None:
        """Raise AlreadyExists when a repeat asks for something else."""
        if self.digest != digest:
            raise AlreadyExists(
                f"the idempotency key was used for {self.subject_id} with another payload; "
                "use a new key",
                reason="IDEMPOTENCY_KEY_REUSED",
                subject="idempotency_key",
                attributes={"used_for": self.subject_id},
            )


def scoped_key(scope: str, tenant_id: str, key: str) -> str | None:
    """The key as the log keeps it; None when there is none. Raises InvalidField."""
    if not key:
        return None
    if len(key) > KEY_CHARACTERS_MAX or not key.isprintable():
        allowed = f"at most {KEY_CHARACTERS_MAX} printable characters"
        raise InvalidField("idempotency_key", key, allowed)
    return f"{scope}/{tenant_id}/{key}"


def keyed_event_id(key: str) -> str:
    """The id of the event that a scoped key guards."""
    return derived_id("evt", key)


def asked_digest(message: Message) -> str:
    """What a call asks for, its `idempotency_key` aside, as a SHA-256 in hexadecimal."""
    asked = type(message)()
    asked.CopyFrom(message)
    asked.ClearField("idempotency_key")
    return hashlib.sha256(asked.SerializeToString(deterministic=True)).hexdigest()


def lookup(key: str) -> AppendCommand:
    """An append of nothing, whose result tells the first use of a key that was used."""
    return AppendCommand(idempotency_key=key)
