"""Processes: a command line comes in, a running child that never outlives this one goes out; this one leaves no memory behind.

A child left behind when its parent is killed with SIGKILL would hold ports and memory for ever, so
each child asks the kernel to be killed with its parent (PR_SET_PDEATHSIG). Two things matter:

- the request is made in the child by a few lines of Python that then become the wanted program
  (exec keeps it), as code between fork and exec is not safe in a process with threads;
- "parent" means the *thread* that forked, so every child is forked by one thread that lives as long
  as this process.
"""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import IO

# Less than the smallest core file; and of all limits the one for which Linux hands nothing to a program, either.
_NO_CORE = 1
_ENOUGH_FILES = 1 << 16
# The parent may be gone before prctl runs: then the child has another one by now, and ends.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""


def raise_file_limit() -> None:
    """Let this process, and those it starts, have as many files open as it is allowed: every connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < enough:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (enough, hard))


def leave_no_core() -> None:
    """Let no core file of this process, or of those it starts, be written: it would hold every password.

    The hard limit stays, so that `prlimit --core=unlimited --pid PID` allows one for whoever needs it.
    """
    with contextlib.suppress(ValueError, OSError):  # it is lower already
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (_NO_CORE, most))


def spawn(
    command: Sequence[str],
    *,
    log: Path | None = None,
    env: Mapping[str, str] | None = None,
    talks: bool = False,
) -> subprocess.Popen[bytes]:
    """Start `command` in a session of its own (Ctrl-C in the terminal does not reach it).

    Its output is appended to `log`, or goes to a pipe when there is none. One that `talks` shares our
    output instead, and has a pipe to us as its input. The process id is that of the program itself.
    """
    wrapped = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]

    def start(output: IO[bytes] | int | None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603 - commands are ours, no shell
            wrapped if sys.platform == "linux" else list(command),
            stdin=subprocess.PIPE if talks else subprocess.DEVNULL,
            stdout=output,
            stderr=None if talks else subprocess.STDOUT,
            env=None if env is None else dict(env),
            start_new_session=True,
        )

    fork = _forker(os.getpid()).submit
    if talks:
        return fork(start, None).result()
    if log is None:
        return fork(start, subprocess.PIPE).result()
    with log.open("ab") as output:
        return fork(start, output).result()


@cache
def _forker(pid: int) -> ThreadPoolExecutor:
    """The thread that forks for process `pid`: a fork of this process needs its own."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"forker-{pid}")
