"""HTTP: health, the JSON API under /api/, and the page that is made of it.

**Invariant:** it calls what the gRPC face calls, and has no query and no fold of its own.
"""
