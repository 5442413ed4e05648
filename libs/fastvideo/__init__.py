"""A model-native runtime for video, image, audio and omni generation.

The names below are imported when they are first used, so that `import fastvideo` costs nothing
and the control side never meets torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fastvideo.client import AsyncClient, Client
    from fastvideo.engine.engine import Engine

__all__ = ["AsyncClient", "Client", "Engine"]

# A public name and the room that it lives in.
_ROOMS: Final = {
    "AsyncClient": "fastvideo.client",
    "Client": "fastvideo.client",
    "Engine": "fastvideo.engine.engine",
}


def __getattr__(name: str) -> object:
    room = _ROOMS.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(room), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_ROOMS])
