"""HTTP as `httpx` has it, without its five seconds: a busy machine may take longer."""

from functools import partial
from typing import Any

import pytest

_httpx: Any = pytest.importorskip("httpx2")

TimeoutException = _httpx.TimeoutException
request = partial(_httpx.request, timeout=60)
stream = partial(_httpx.stream, timeout=60)
get = partial(_httpx.get, timeout=60)
post = partial(_httpx.post, timeout=60)
