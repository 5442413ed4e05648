"""What a result's bits depend on: libraries, processor, threads."""

import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import torch

from fastvideo.version import program_version

_PACKAGES: Final = ("torch", "diffusers", "transformers", "safetensors", "av")
_CPU_INFO: Final = Path("/proc/cpuinfo")


def machine_fingerprint(threads: int) -> dict[str, str]:
    """Versions, processor, instruction set and the thread count that computes."""
    return {
        **library_versions(),
        "cpu": _cpu_model(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "threads": str(threads),
        "python": platform.python_version(),
    }


def library_versions() -> dict[str, str]:
    """Installed version by package; one that is absent is left out."""
    found = {"fastvideo": program_version()}
    found |= {name: _version(name) for name in _PACKAGES}
    return {name: value for name, value in found.items() if value}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cpu_model() -> str:
    if _CPU_INFO.exists():
        for line in _CPU_INFO.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
