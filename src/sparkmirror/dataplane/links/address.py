"""Where the processes of a Spark session listen, and the greeting that proves that a connection belongs to the session.

A greeting has a fixed size: before a listener has read a valid one, it reads nothing else and trusts no length.
"""

from __future__ import annotations

import enum
import secrets
import struct
from dataclasses import dataclass
from typing import NamedTuple

from .ports import ANY_PORT

_GREETING = struct.Struct(">4sBB32s")
_MAGIC, _VERSION = b"SPMR", 1
GREETING_BYTES = _GREETING.size
NO_TLS = ""
"""In place of a key: on a local master, where connections do not leave the machine."""


class Purpose(enum.IntEnum):
    """What a connection is for."""

    DRIVER_LINK = 1
    """A copy task holds it as long as it runs."""
    QUERIES = 2
    """A copy task asks the driver to run queries."""
    SLICES = 3
    """A task of a query takes records from a copy task, or brings results."""


class Address(NamedTuple):
    """Host and port of a listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, repr=False)
class SessionSecret:
    """What the processes of one Spark session share, and nobody else has; travels inside pickled plans and functions."""

    token: str
    """32 random characters."""
    key: str = NO_TLS
    """The key and the certificate of the session's TLS (`session_tls`), as PEM."""


@dataclass(frozen=True, slots=True)
class Driver:
    """How a copy task reaches its driver, and where others reach the copy task; travels in the plan."""

    address: Address
    secret: SessionSecret
    task_ports: tuple[int, ...] = ANY_PORT
    """Where a copy task may listen for the tasks of queries: one of these."""


def new_token() -> str:
    """32 random characters."""
    return secrets.token_hex(16)


def greeting(token: str, purpose: Purpose) -> bytes:
    return _GREETING.pack(_MAGIC, _VERSION, purpose, token.encode("ascii"))


def purpose_of(data: bytes | bytearray, token: str) -> Purpose | None:
    """What a connection with this greeting is for; None if it does not belong to the session."""
    magic, version, purpose, given = _GREETING.unpack(data)
    is_right = secrets.compare_digest(given, token.encode("ascii"))
    if not is_right or (magic, version) != (_MAGIC, _VERSION) or purpose not in list(Purpose):
        return None
    return Purpose(purpose)
