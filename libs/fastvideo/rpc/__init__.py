"""gRPC at the edge of a process: servers, channels, and typed errors across the wire.

Domain code raises `fastvideo.errors` and knows no transport; this room maps them to
`google.rpc.Status` and back.
"""
