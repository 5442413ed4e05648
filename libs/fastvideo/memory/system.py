"""The memory of this process and of its machine as the operating system sees it."""

import ctypes
import gc
import os
from pathlib import Path
from typing import Final

import torch

_STATM: Final = Path("/proc/self/statm")
_MEMINFO: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


def resident_process_bytes() -> int:
    """Resident set size of this process; 0 where the system does not tell."""
    if not _STATM.is_file():
        return 0
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def free_machine_bytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """What programs can still get, of the machine or of the container when that is less.

    None where the system does not tell. What files keep in memory counts as free: it goes when
    somebody needs it.
    """
    if not meminfo.is_file():
        return None
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines() if ":" in line)
    free = 1024 * int(lines["MemAvailable"].split()[0])
    limit, current = cgroup / "memory.max", cgroup / "memory.current"
    if limit.is_file() and (most := limit.read_text().strip()).isdigit():
        facts = (cgroup / "memory.stat").read_text().splitlines()
        files = {name: int(size) for name, size in map(str.split, facts)}
        taken = int(current.read_text()) - files["inactive_file"] - files["active_file"]
        free = min(free, int(most) - taken)
    return max(free, 0)


def give_back_unused() -> None:
    """Return what was freed to the system: allocators keep it otherwise, and nobody gains."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Only glibc has it; other allocators give back by themselves.
    if trim is not None:
        trim(0)
