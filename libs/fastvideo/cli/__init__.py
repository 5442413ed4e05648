"""The command line: `fastvideo`.

Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted or cancelled.
Results go to standard output; progress and errors to standard error.

**Invariant:** it talks to a server through `fastvideo.client` alone and imports no torch.
"""
