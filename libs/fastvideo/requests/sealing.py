"""What a tenant wrote, under the tenant's key, as the log keeps it.

Each type has the name and the fields of its message in `proto/`; `fastvideo.wire` maps
between the two.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedContent:
    """Unreadable for ever once the key is erased."""

    key_id: str = ""
    nonce: bytes = b""
    ciphertext: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantErased:
    """tenant.erased: the keys of a tenant's content are gone."""

    tenant_id: str = ""
    key_ids: tuple[str, ...] = ()
    reason: str = ""
    # Its artifacts go too: those of before the event.
    artifacts: bool = False
