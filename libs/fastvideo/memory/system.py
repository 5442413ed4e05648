"""The memory of this process as the operating system sees it."""

import ctypes
import gc
import os
from pathlib import Path
from typing import Final

import torch

_STATM: Final = Path("/proc/self/statm")


def resident_process_bytes() -> int:
    """Resident set size of this process; 0 where the system does not tell."""
    if not _STATM.is_file():
        return 0
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def give_back_unused() -> None:
    """Return what was freed to the system: allocators keep it otherwise, and nobody gains."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Only glibc has it; other allocators give back by themselves.
    if trim is not None:
        trim(0)
