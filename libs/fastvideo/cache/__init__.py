"""Typed, keyed, bounded caches of a worker."""
