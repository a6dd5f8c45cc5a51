"""Kafka's oldest encoding, which Connect's messages and MirrorMaker's records share: bytes in, their fields one by one out."""

from __future__ import annotations

import struct
from typing import ClassVar

from sparkmirror.errors import KafkaError

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")
MAX_STRING = 0x7FFF


class Fields:
    """Reads fields in their order; what is not there, or not what it should be, is `malformed`."""

    __slots__ = ("_data", "_position", "name")
    malformed: ClassVar[type[KafkaError]]

    def __init__(self, data: bytes | None, name: str) -> None:
        if data is None:
            raise self.malformed(f"A {name} is null.")
        self._data = data
        self._position = 0
        self.name = name

    @property
    def at_end(self) -> bool:
        return self._position == len(self._data)

    def int16(self) -> int:
        return self._integer(INT16)

    def int32(self) -> int:
        return self._integer(INT32)

    def int64(self) -> int:
        return self._integer(INT64)

    def string(self) -> str:
        raw = self._take(self.int16())
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise self.malformed(f"A string in the {self.name} is not UTF-8.") from error

    def nullable_bytes(self) -> bytes | None:
        size = self.int32()
        return None if size < 0 else self._take(size)

    def _integer(self, form: struct.Struct) -> int:
        (value,) = form.unpack(self._take(form.size))
        return int(value)

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise self.malformed(
                f"The {self.name} ({len(self._data)} bytes) ends in the middle of a field."
            )
        raw = self._data[self._position : end]
        self._position = end
        return raw


def string(text: str, holder: str, malformed: type[KafkaError]) -> bytes:
    """A text as it is written; `holder` says what cannot hold one that is too long."""
    raw = text.encode()
    if len(raw) > MAX_STRING:
        raise malformed(
            f"{text[:40]!r}... is {len(raw)} bytes long; {holder} {MAX_STRING}.",
            "Use a shorter name.",
        )
    return INT16.pack(len(raw)) + raw
