"""Batches of an internal topic, of which the one in the middle cannot be opened."""

from __future__ import annotations

import struct

from sparkmirror.kafka.compression import compress
from sparkmirror.kafka.records import NewRecord
from tests.unit.making import batch, sealed

_HEADER = 61
_ZSTD = 4


def bombed() -> bytearray:
    """Records `before` at offset 0 and `behind` at 2; between them a few kilobytes that would become gigabytes."""
    first = batch([NewRecord(0, 1, b"before", b"v", [])], base=0)
    last = batch([NewRecord(2, 1, b"behind", b"v", [])], base=2)
    bomb = bytearray(batch([NewRecord(1, 1, b"bomb", b"v", [])], base=1)[:_HEADER])
    bomb += bytes(compress(_ZSTD, bytes(64 << 20)))
    struct.pack_into(">i", bomb, 8, len(bomb) - 12)
    struct.pack_into(">h", bomb, 21, _ZSTD)
    struct.pack_into(">q", bomb, 27, 1)  # as control batches have none
    struct.pack_into(">q", bomb, 35, 1)
    return bytearray(b"".join((first, sealed(bomb), last)))
