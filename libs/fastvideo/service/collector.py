"""Python's garbage collector in a process that serves."""

import gc


def set_apart() -> None:
    """Take what lives now out of later collections.

    A full collection looks at every container, and nothing else runs meanwhile: 100 ms and more for
    what a service has imported, which lives as long as the process. Only what comes later is
    looked at from now on. Whatever lives now and is dropped later is freed as ever, unless it is
    part of a cycle.
    """
    gc.collect()
    gc.freeze()
