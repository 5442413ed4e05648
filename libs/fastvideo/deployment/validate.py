"""Validate every card and program: `python -m fastvideo.deployment.validate`."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from fastvideo.deployment.catalog import FAMILIES, Catalog
from fastvideo.errors import FastVideoError


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each model's digest and programs; the status is 1 when a document is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m fastvideo.deployment.validate", description=__doc__
    )
    parser.add_argument("--families", type=Path, default=FAMILIES, help="folder of families")
    parser.add_argument("--checkpoints", type=Path, help="folder of checkpoints, one a model")
    options = parser.parse_args(arguments)
    try:
        catalog = Catalog.load(None, options.checkpoints, options.families)
    except FastVideoError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    for entry in catalog.entries:
        sys.stdout.write(
            f"{entry.card.model_id}: card {entry.card_digest[:12]}, "
            f"programs {', '.join(entry.programs)}, "
            f"{'ready' if entry.checkpoint_path else 'no checkpoint'}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
