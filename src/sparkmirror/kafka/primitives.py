"""Kafka's primitive types for the hand-written Fetch and Produce: a writer of small parts, a reader that slices views."""

from __future__ import annotations

import struct

I16 = struct.Struct(">h")
I32 = struct.Struct(">i")
I64 = struct.Struct(">q")


def uvarint(value: int) -> bytes:
    """Unsigned varint, as flexible versions write lengths."""
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: str) -> bytes:
    raw = value.encode()
    return I16.pack(len(raw)) + raw


def compact_string(value: str) -> bytes:
    raw = value.encode()
    return uvarint(len(raw) + 1) + raw


def request_head(
    api_key: int, version: int, correlation: int, client_id: str, *, flexible: bool
) -> bytes:
    """Request header v1, or v2 (with its empty tag section) for flexible versions. Client ids stay non-compact in both."""
    head = struct.pack(">hhi", api_key, version, correlation) + string(client_id)
    return head + b"\0" if flexible else head


class Reader:
    """A cursor over an answer; `view` slices are handed out without copying."""

    __slots__ = ("position", "view")

    def __init__(self, view: memoryview, position: int = 0) -> None:
        self.view = view
        self.position = position

    def i8(self) -> int:
        value = self.view[self.position]
        self.position += 1
        return value

    def i16(self) -> int:
        (value,) = I16.unpack_from(self.view, self.position)
        self.position += 2
        return int(value)

    def i32(self) -> int:
        (value,) = I32.unpack_from(self.view, self.position)
        self.position += 4
        return int(value)

    def i64(self) -> int:
        (value,) = I64.unpack_from(self.view, self.position)
        self.position += 8
        return int(value)

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.view[self.position]
            self.position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 28:
                raise ValueError("a varint is longer than 5 bytes")

    def take(self, size: int) -> memoryview:
        part = self.view[self.position : self.position + size]
        self.position += size
        return part

    def uuid(self) -> bytes:
        return bytes(self.take(16))

    def array(self, *, flexible: bool) -> int:
        """Length of an array; a null one counts as empty."""
        return max(0, self.uvarint() - 1 if flexible else self.i32())

    def text(self, *, flexible: bool) -> str | None:
        size = self.uvarint() - 1 if flexible else self.i16()
        return None if size < 0 else str(self.take(size), "utf-8")

    def blob(self, *, flexible: bool) -> memoryview:
        """Nullable bytes as a view; null counts as empty."""
        return self.take(max(0, self.uvarint() - 1 if flexible else self.i32()))

    def tags(self) -> dict[int, memoryview] | None:
        """The tagged fields at this place; None when there are none, which is nearly always."""
        count = self.uvarint()
        if count == 0:
            return None
        found = {}
        for _ in range(count):
            tag = self.uvarint()
            found[tag] = self.take(self.uvarint())
        return found
