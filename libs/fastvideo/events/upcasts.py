"""The steps from released schemas to today's, oldest first. Append; never change one."""

from typing import Final

from fastvideo.api.events.v1 import events_pb2
from fastvideo.events.upcasting import Upcast


def _batch_with_step_ranges(payload: bytes) -> bytes:
    """BatchExecuted 1 to 2: every result says which steps it covered, and in which time.

    A result of schema 1 was of one step, the one that led to its state's version; of how many,
    it did not say. All ran in the batch's one forward.
    """
    batch = events_pb2.BatchExecuted.FromString(payload)
    silent = [result for result in batch.results if not result.HasField("step_range")]
    if not silent:
        # Written when the field was new and the schema was not yet told apart.
        return payload
    for result in silent:
        result.step_range.start = max(0, result.state_version - 1)
        result.step_range.stop = result.state_version
        result.measured_seconds = batch.measured_seconds
    return batch.SerializeToString(deterministic=True)


UPCASTS: Final = (Upcast("BatchExecuted", 1, _batch_with_step_ranges),)
