"""The HTTP that programs written for OpenAI's API speak: /v1/videos and /v1/models.

**Invariant:** it calls the objects that gRPC calls, and decides nothing of its own.
"""
