"""Regenerate `libs/fastvideo/api` from the protos.

Run as `python proto/generate.py`; with `--check` nothing is written, and what differs from the
tree is named and fails. Proto paths are `fastvideo/<area>/v1`; the Python code lives one level
deeper, in `fastvideo.api`, so the imports between generated modules are rewritten.
"""

import argparse
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
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    check = parser.parse_args().check
    wanted = generate()
    if check:
        present = {
            path.relative_to(TARGET): path.read_text()
            for path in TARGET.rglob("*.py*")
            if "__pycache__" not in path.parts
        }
        stale = sorted(
            str(path)
            for path in wanted.keys() | present.keys()
            if wanted.get(path) != present.get(path)
        )
        for name in stale:
            sys.stderr.write(f"differs from what the protos give: {TARGET / name}\n")
        return 1 if stale else 0
    shutil.rmtree(TARGET, ignore_errors=True)
    for path, text in wanted.items():
        (TARGET / path).parent.mkdir(parents=True, exist_ok=True)
        (TARGET / path).write_text(text)
    sys.stdout.write(f"{len(wanted)} files, grpcio-tools {version('grpcio-tools')}\n")
    return 0


def generate() -> dict[Path, str]:
    """The text of every generated file, by its path below `fastvideo/api`."""
    protos = sorted(str(path.relative_to(PROTO)) for path in PROTO.rglob("*.proto"))
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    files: dict[Path, str] = {}
    with tempfile.TemporaryDirectory() as scratch:
        status = protoc.main(
            [
                "protoc",
                f"-I{PROTO}",
                f"-I{well_known}",
                f"--python_out={scratch}",
                f"--grpc_python_out={scratch}",
                f"--mypy_out=quiet:{scratch}",
                f"--mypy_grpc_out=quiet:{scratch}",
                *protos,
            ]
        )
        if status != 0:
            raise SystemExit(int(status))
        root = Path(scratch) / "fastvideo"
        for source in sorted(root.rglob("*.py*")):
            if "_pb2_grpc" in source.name and "class " not in source.read_text():
                continue  # An area without services.
            files[source.relative_to(root)] = rewrite(source.read_text())
    for folder in {parent for path in files for parent in path.parents}:
        files[folder / "__init__.py"] = ""
    files[Path("__init__.py")] = (
        '"""Generated from `proto/` by `proto/generate.py`; never edited by hand."""\n'
    )
    return files


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
