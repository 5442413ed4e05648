"""Regenerate `libs/fastvideo/api` from the protos.

Run as `python proto/generate.py`; CI runs it and fails when the tree changes. Proto paths
are `fastvideo/<area>/v1`; the Python code lives one level deeper, in `fastvideo.api`, so
the imports between generated modules are rewritten.
"""

import re
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
TARGET = ROOT / "libs" / "fastvideo" / "api"
IMPORT = re.compile(r"\bfastvideo((?:\.|/)\w+(?:\.|/)v1)\b")


def main() -> int:
    files = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    with tempfile.TemporaryDirectory() as scratch:
        status = protoc.main(
            [
                "protoc",
                f"-I{PROTO}",
                f"-I{well_known}",
                f"--python_out={scratch}",
                f"--grpc_python_out={scratch}",
                f"--mypy_out={scratch}",
                f"--mypy_grpc_out={scratch}",
                *files,
            ]
        )
        if status != 0:
            return int(status)
        shutil.rmtree(TARGET, ignore_errors=True)
        for source in sorted(Path(scratch).rglob("*.py*")):
            if "_pb2_grpc" in source.name and "class " not in source.read_text():
                continue  # An area without services.
            target = TARGET / source.relative_to(Path(scratch) / "fastvideo")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(rewrite(source.read_text()))
    for folder in [TARGET, *(path for path in TARGET.rglob("*") if path.is_dir())]:
        (folder / "__init__.py").touch()
    (TARGET / "__init__.py").write_text(
        '"""Generated from `proto/` by `proto/generate.py`; never edited by hand."""\n'
    )
    sys.stdout.write(f"{len(files)} protos, grpcio-tools {version('grpcio-tools')}\n")
    return 0


def rewrite(text: str) -> str:
    """Point imports between generated modules at `fastvideo.api`."""
    lines = []
    for line in text.splitlines():
        if re.match(r"\s*(from|import) fastvideo[./]", line):
            line = IMPORT.sub(r"fastvideo.api\1", line)
        lines.append(line.rstrip())
    return "\n".join(lines).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.exit(main())
