"""The embedded stack: Postgres, NATS, Redis and the five services on this machine. Linux only.

**Invariant:** this room knows processes, ports and folders; it does not know what a request is.

API boundary: `ensure_running`, `find_running` and `StackAddresses`. README.md has the environment
that services are given.
"""

from fastvideo.local.launch import StackAddresses, ensure_running, find_running

__all__ = ["StackAddresses", "ensure_running", "find_running"]
