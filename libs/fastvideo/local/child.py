"""Become another program that dies with its parent. Linux only.

    python -I -S child.py PARENT_PID SIGNAL USER PROGRAM [ARGUMENT ...]

Takes the user's identity ("-" keeps the present one), asks the kernel for SIGNAL when the parent
dies (PR_SET_PDEATHSIG), then executes PROGRAM in this same process. The order matters: a change of
identity clears the request, an exec keeps it. The signal is bound to the parent's *thread* that
started us, so the supervisor starts everything from its main thread.

This file is run by its path and imports the standard library alone: it is on the way of every
start and must cost milliseconds.
"""

import ctypes
import os
import pwd
import sys

PR_SET_PDEATHSIG = 1
EXIT_CANNOT_RUN = 127


def take_identity(user: str) -> None:
    """Become a system user, with that user's groups and no other."""
    entry = pwd.getpwnam(user)
    os.setgid(entry.pw_gid)
    os.initgroups(user, entry.pw_gid)
    os.setuid(entry.pw_uid)


def die_with_parent(parent: int, signal_number: int) -> None:
    """Ask for a signal at the parent's death; leave at once if it is dead already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal_number, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        sys.exit(EXIT_CANNOT_RUN)


def main(arguments: list[str]) -> None:
    parent, signal_number, user, program = arguments[:4]
    try:
        if user != "-":
            take_identity(user)
        die_with_parent(int(parent), int(signal_number))
        os.execve(program, arguments[3:], os.environ)
    except (OSError, KeyError) as error:
        sys.stderr.write(f"cannot run {program} as {user}: {error}\n")
        sys.exit(EXIT_CANNOT_RUN)


if __name__ == "__main__":
    main(sys.argv[1:])
