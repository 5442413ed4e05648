"""What tenants wrote goes into the log sealed, and comes out of it as it was.

`sealing.store.SealedEventStore` stands between a service and its store: above it everybody sees
plain events, below it (table, archive, relay, bus) the texts are ciphertext under the tenant's
key. Once that key is erased they read as empty texts, and everything else reads as before:
digests, offsets and versions are those of the sealed event and never change.
"""

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fastvideo.api.events.v1 import events_pb2
from fastvideo.errors import CorruptLog
from fastvideo.events.records import NewEvent, StoredEvent
from fastvideo.events.sealing.keys import NONCE_BYTES, CachedTenantKeys, TenantKeys
from fastvideo.events.sealing.texts import SEALED_TYPES

TENANT_ERASED: Final = "TenantErased"


class Seals:
    """Seals new events and opens stored ones."""

    def __init__(self, keys: TenantKeys) -> None:
        self._keys = CachedTenantKeys(keys)

    async def seal(self, stream_id: str, event: NewEvent) -> NewEvent:
        """The event with the texts of its tenant under the tenant's key."""
        sealed_type = SEALED_TYPES.get(event.type)
        if sealed_type is None:
            return event
        message = sealed_type.message.FromString(event.payload)
        slots = list(sealed_type.slots(message))
        if not any(slot.get() for slot in slots):
            return event
        tenant_id = events_pb2.EventMetadata.FromString(event.metadata).tenant_id
        key = await self._keys.live(tenant_id)
        assert key.key is not None
        nonce = secrets.token_bytes(NONCE_BYTES)
        texts = json.dumps([slot.get() for slot in slots], ensure_ascii=False).encode()
        bound = _bound(tenant_id, stream_id, event.event_id)
        message.sealed.key_id = key.key_id
        message.sealed.nonce = nonce
        message.sealed.ciphertext = AESGCM(key.key).encrypt(nonce, texts, bound)
        for slot in slots:
            slot.set("")
        return replace(event, payload=message.SerializeToString(deterministic=True))

    async def open(self, stored: StoredEvent) -> StoredEvent:
        """The event with its texts, empty once they are erased; its digest is still the log's.

        Raises CorruptLog for what was sealed under an unknown key or for another place.
        """
        if stored.type == TENANT_ERASED:
            erased = events_pb2.TenantErased.FromString(stored.payload)
            self._keys.forget(erased.tenant_id)
        sealed_type = SEALED_TYPES.get(stored.type)
        if sealed_type is None:
            return stored
        message = sealed_type.message.FromString(stored.payload)
        if not message.HasField("sealed"):
            return stored
        texts = await self._texts(stored, message.sealed)
        for slot, text in zip(sealed_type.slots(message), texts, strict=False):
            slot.set(text)
        message.ClearField("sealed")
        return stored._replace(payload=message.SerializeToString(deterministic=True))

    async def _texts(self, stored: StoredEvent, sealed: events_pb2.SealedContent) -> Sequence[str]:
        key = await self._keys.find(sealed.key_id)
        if key.key is None:
            return ()
        bound = _bound(key.tenant_id, stored.stream_id, stored.event_id)
        try:
            plain = AESGCM(key.key).decrypt(sealed.nonce, sealed.ciphertext, bound)
        except InvalidTag as error:
            raise CorruptLog(
                f"the sealed content of event {stored.event_id} was altered or moved here",
                reason="SEALED_CONTENT",
                subject=stored.event_id,
            ) from error
        texts: list[str] = json.loads(plain)
        return texts


def _bound(tenant_id: str, stream_id: str, event_id: str) -> bytes:
    """What sealed content belongs to: it opens for no other tenant, stream or event."""
    return json.dumps([tenant_id, stream_id, event_id]).encode()
