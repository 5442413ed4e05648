"""Bytes by their digest, in a local folder, in any S3 or in memory.

**Invariant:** a blob never changes, and is there whole or not at all. What it means, to whom it
belongs and how long it lives is not known here.
"""

from fastvideo.blobs.objects import ObjectBlobStore, open_blobs
from fastvideo.blobs.port import Blob, BlobStore, CorruptBlob, KeptByStore

__all__ = ["Blob", "BlobStore", "CorruptBlob", "KeptByStore", "ObjectBlobStore", "open_blobs"]
