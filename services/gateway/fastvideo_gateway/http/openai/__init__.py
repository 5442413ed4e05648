"""The HTTP that programs written for OpenAI's API speak: videos, images and models under /v1.

**Invariant:** it calls the objects that gRPC calls, and decides nothing of its own.
"""
