"""API keys as texts: `fv_<key id>_<secret>`.

The secret is 256 random bits. Nobody can guess or enumerate it, so its plain SHA-256 is what is
kept of it: a slow hash is for secrets that people think up.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import Final, Self

SECRET_CHARACTERS: Final = 43
"""32 bytes in base 64 for URLs, without padding."""

_TOKEN: Final = re.compile(
    rf"fv_(?P<key_id>[a-z0-9][a-z0-9_-]{{0,62}})_(?P<secret>[A-Za-z0-9_-]{{{SECRET_CHARACTERS}}})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class ApiToken:
    """A key that somebody holds: its id, which may be told, and its secret, which may not."""

    key_id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls, key_id: str) -> Self:
        """A fresh secret under an id."""
        return cls(key_id, secrets.token_urlsafe(32))

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The key of its text; None when it cannot be one."""
        found = _TOKEN.fullmatch(text)
        return None if found is None else cls(found["key_id"], found["secret"])

    @property
    def text(self) -> str:
        """What its holder shows at a door."""
        return f"fv_{self.key_id}_{self.secret}"

    @property
    def secret_sha256(self) -> str:
        """What is kept of the secret, hexadecimal."""
        return hashlib.sha256(self.secret.encode()).hexdigest()

    def opens(self, secret_sha256: str) -> bool:
        """Whether this is the secret of a hash; takes the same time whatever the answer."""
        return hmac.compare_digest(self.secret_sha256.encode(), secret_sha256.encode())


def bearer_of(authorization: str) -> str:
    """The credential of an `authorization` header; empty when it has none of this scheme."""
    scheme, _, credential = authorization.partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else ""
