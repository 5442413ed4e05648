"""Goes on with saved loops in a process of its own: `python -m ... FOLDER`.

FOLDER holds NAME.snapshot files, NAME being LOOP-VERSION. Prints one JSON object: by name the
digest of every state that followed, and of the outputs.
"""

import json
import sys
from pathlib import Path

import torch

from fastvideo.loops.snapshot_format import decode
from fastvideo.loops.snapshots import load_state
from fastvideo.scheduling.work import LoopRef
from tests.contract.loop_cases import case_of, kernel_of
from tests.contract.loop_driving import drive_on
from tests.parity.wan import embedded_model


def main(folder: Path) -> None:
    found = {}
    with torch.no_grad():
        for path in sorted(folder.glob("*.snapshot")):
            kernel = kernel_of(path.stem.rpartition("-")[0])
            request = case_of(kernel.spec.loop_id).request
            loop = LoopRef(request_id=request.request_id, node_id="n", attempt=2)
            saved = decode(path.read_bytes())
            state = load_state(kernel, saved, loop, request, embedded_model())
            found[path.stem] = drive_on(kernel, state, embedded_model())
    print(json.dumps(found))  # noqa: T201


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
