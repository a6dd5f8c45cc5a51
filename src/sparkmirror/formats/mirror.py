"""MirrorMaker's own records: offset syncs, checkpoints and heartbeats, to and from bytes.

Big-endian integers; a string is its length in bytes (int16) and UTF-8. Offset syncs have no
version; the values of the other two start with one, of which 0 is the only one known: readers take
any version for 0, as Kafka does. Bytes after the last field are ignored.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from sparkmirror.errors import KafkaError

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_VERSION = 0
_MAX_STRING = 0x7FFF


class MalformedRecord(KafkaError):
    """A record of an internal topic is not what MirrorMaker writes there."""


@dataclass(frozen=True, slots=True)
class OffsetSync:
    """A record of a source partition and its copy: upstream offset and downstream offset."""

    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a consumer group is: upstream, and what that is downstream in the remote topic."""

    group: str
    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life of the flow between two clusters, in milliseconds since 1970."""

    source_alias: str
    target_alias: str
    timestamp: int


def encode_offset_sync(sync: OffsetSync) -> tuple[bytes, bytes]:
    """Key and value of an offset sync."""
    key = _string(sync.topic) + _INT32.pack(sync.partition)
    return key, _INT64.pack(sync.upstream_offset) + _INT64.pack(sync.downstream_offset)


def decode_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync:
    """The offset sync of a record; MalformedRecord if it is none."""
    fields, body = _Fields(key, "offset sync key"), _Fields(value, "offset sync value")
    return OffsetSync(fields.string(), fields.int32(), body.int64(), body.int64())


def encode_checkpoint(checkpoint: Checkpoint) -> tuple[bytes, bytes]:
    """Key and value of a checkpoint."""
    key = _string(checkpoint.group) + _string(checkpoint.topic) + _INT32.pack(checkpoint.partition)
    value = (
        _INT16.pack(_VERSION)
        + _INT64.pack(checkpoint.upstream_offset)
        + _INT64.pack(checkpoint.downstream_offset)
        + _string(checkpoint.metadata)
    )
    return key, value


def decode_checkpoint(key: bytes | None, value: bytes | None) -> Checkpoint:
    """The checkpoint of a record; MalformedRecord if it is none."""
    fields, body = _Fields(key, "checkpoint key"), _Fields(value, "checkpoint value")
    body.int16()
    return Checkpoint(
        fields.string(),
        fields.string(),
        fields.int32(),
        body.int64(),
        body.int64(),
        body.string(),
    )


def encode_heartbeat(heartbeat: Heartbeat) -> tuple[bytes, bytes]:
    """Key and value of a heartbeat."""
    key = _string(heartbeat.source_alias) + _string(heartbeat.target_alias)
    return key, _INT16.pack(_VERSION) + _INT64.pack(heartbeat.timestamp)


def decode_heartbeat(key: bytes | None, value: bytes | None) -> Heartbeat:
    """The heartbeat of a record; MalformedRecord if it is none."""
    fields, body = _Fields(key, "heartbeat key"), _Fields(value, "heartbeat value")
    body.int16()
    return Heartbeat(fields.string(), fields.string(), body.int64())


def _string(text: str) -> bytes:
    raw = text.encode()
    if len(raw) > _MAX_STRING:
        raise MalformedRecord(
            f"{text[:40]!r}... is {len(raw)} bytes long; MirrorMaker's records hold {_MAX_STRING}.",
            "Use a shorter name.",
        )
    return _INT16.pack(len(raw)) + raw


class _Fields:
    """The fields of a key or a value, read one after the other."""

    __slots__ = ("_data", "_name", "_position")

    def __init__(self, data: bytes | None, name: str) -> None:
        if data is None:
            raise MalformedRecord(f"A {name} is null.")
        self._data = data
        self._name = name
        self._position = 0

    def int16(self) -> int:
        return self._integer(_INT16)

    def int32(self) -> int:
        return self._integer(_INT32)

    def int64(self) -> int:
        return self._integer(_INT64)

    def string(self) -> str:
        raw = self._take(self.int16())
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise MalformedRecord(f"A string in the {self._name} is not UTF-8.") from error

    def _integer(self, form: struct.Struct) -> int:
        (value,) = form.unpack(self._take(form.size))
        return int(value)

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise MalformedRecord(
                f"The {self._name} ({len(self._data)} bytes) ends in the middle of a field."
            )
        raw = self._data[self._position : end]
        self._position = end
        return raw
