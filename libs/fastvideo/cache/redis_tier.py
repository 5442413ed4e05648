"""A tier in Redis, shared by workers. It may be wiped or gone at any time."""

from typing import Any, Final

import redis

from fastvideo.telemetry.logging import get_logger

_LOG: Final = get_logger(__name__)
_PREFIX: Final = "fastvideo:cache:"
# A tier that takes longer is slower than computing.
_TIMEOUT_S: Final = 0.5


class RedisTier:
    """Bytes by digest with a time to live; safe to use from any thread."""

    name = "redis"

    def __init__(self, url: str, *, ttl_s: int = 3600, value_bytes_max: int = 16 << 20) -> None:
        self._client: Any = redis.Redis.from_url(
            url, socket_timeout=_TIMEOUT_S, socket_connect_timeout=_TIMEOUT_S
        )
        self._ttl_s = ttl_s
        self._value_bytes_max = value_bytes_max

    def get(self, digest: str) -> bytes | None:
        """The bytes under a digest; None also when Redis does not answer."""
        try:
            data: bytes | None = self._client.get(_PREFIX + digest)
        except redis.RedisError as error:
            _LOG.warning("the cache tier does not answer", error=type(error).__name__)
            return None
        return data

    def put(self, digest: str, data: bytes) -> bool:
        """Keep bytes for the time to live; False when they are too many or nobody answers."""
        if len(data) > self._value_bytes_max:
            return False
        try:
            return bool(self._client.set(_PREFIX + digest, data, ex=self._ttl_s))
        except redis.RedisError as error:
            _LOG.warning("the cache tier does not answer", error=type(error).__name__)
            return False

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()
