"""How much memory a function of a query may take: a limit comes in, held by the system for this process; MemoryError comes out.

Spark gives its Python workers now this to do, now that: whoever does something else lifts the limit first.
"""

from __future__ import annotations

import resource
from pathlib import Path

_PAGE = resource.getpagesize()
_held: list[int] = []


def hold_to(limit: int) -> None:
    """From now on this process gets `limit` bytes more than it has, at most. Nothing is done if that is so already."""
    if _held and _held[0] == limit:
        return
    _held[:] = [limit]
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * _PAGE
    most = taken + limit
    resource.setrlimit(
        resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )


def lift() -> None:
    """Let this process have what the system gives."""
    if _held:
        _held.clear()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
