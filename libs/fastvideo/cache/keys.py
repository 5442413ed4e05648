"""Digests of cache keys: equal for equal keys in every process, on every machine."""

import hashlib

from fastvideo.model.caching import CacheKey
from fastvideo.model.canonical import canonical_digest


def key_digest(key: CacheKey) -> str:
    """SHA-256 of the key's canonical encoding, all fields of it, hexadecimal."""
    return canonical_digest(key)


def text_hash(text: str) -> str:
    """SHA-256 of a text's UTF-8 bytes, for `CacheKey.input_hashes`."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
