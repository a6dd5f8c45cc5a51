"""Where programs of tests run: the address at which they listen, and the command that starts them there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Machine:
    """This machine by default; tests have hosts in network namespaces, too."""

    address: str = "127.0.0.1"
    enter: tuple[str, ...] = ()
    """What stands before a command to run it there."""


HERE = Machine()
