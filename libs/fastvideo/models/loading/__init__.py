"""Components from a verified checkpoint, by what the card says of them.

`open_checkpoint` verifies a folder, `load_component` makes one component of it. A component's
kind says how it is loaded, its `load_id` which upstream class it is; there is no other way from
a file to a model.
"""

from fastvideo.models.loading.adapters import LowRankAdapter
from fastvideo.models.loading.checkpoint import VerifiedCheckpoint, open_checkpoint
from fastvideo.models.loading.registry import LOADERS, load_component, load_components

__all__ = [
    "LOADERS",
    "LowRankAdapter",
    "VerifiedCheckpoint",
    "load_component",
    "load_components",
    "open_checkpoint",
]
