"""Why a request took the time that it took, read from the log.

**Invariant:** what folds the history is pure, as the scheduler's core is; `reading` alone reads a
log, and `picture` alone draws.
"""
