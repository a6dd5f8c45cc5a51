"""MirrorMaker's own records: offset syncs, checkpoints and heartbeats, to and from bytes.

Big-endian integers; a string is its length in bytes (int16) and UTF-8. Offset syncs have no
version; the values of the other two start with one, of which 0 is the only one known: readers take
any version for 0, as Kafka does. Bytes after the last field are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sparkmirror.errors import KafkaError

from .fields import INT16, INT32, INT64, Fields, string

_VERSION = 0
BY_TIME: Final = -1
"""The upstream offset of a checkpoint that was found by time: there is no one such offset. (Ours; Kafka takes any number.)"""


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

    @property
    def is_by_time(self) -> bool:
        """Whether it tells of a topic that was not copied partition by partition."""
        return self.upstream_offset == BY_TIME


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A sign of life of the flow between two clusters, in milliseconds since 1970."""

    source_alias: str
    target_alias: str
    timestamp: int


def encode_offset_sync(sync: OffsetSync) -> tuple[bytes, bytes]:
    """Key and value of an offset sync."""
    key = _string(sync.topic) + INT32.pack(sync.partition)
    return key, INT64.pack(sync.upstream_offset) + INT64.pack(sync.downstream_offset)


def decode_offset_sync(key: bytes | None, value: bytes | None) -> OffsetSync:
    """The offset sync of a record; MalformedRecord if it is none."""
    fields, body = _Fields(key, "offset sync key"), _Fields(value, "offset sync value")
    return OffsetSync(fields.string(), fields.int32(), body.int64(), body.int64())


def encode_checkpoint(checkpoint: Checkpoint) -> tuple[bytes, bytes]:
    """Key and value of a checkpoint."""
    key = _string(checkpoint.group) + _string(checkpoint.topic) + INT32.pack(checkpoint.partition)
    value = (
        INT16.pack(_VERSION)
        + INT64.pack(checkpoint.upstream_offset)
        + INT64.pack(checkpoint.downstream_offset)
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
    return key, INT16.pack(_VERSION) + INT64.pack(heartbeat.timestamp)


def decode_heartbeat(key: bytes | None, value: bytes | None) -> Heartbeat:
    """The heartbeat of a record; MalformedRecord if it is none."""
    fields, body = _Fields(key, "heartbeat key"), _Fields(value, "heartbeat value")
    body.int16()
    return Heartbeat(fields.string(), fields.string(), body.int64())


def _string(text: str) -> bytes:
    return string(text, "MirrorMaker's records hold", MalformedRecord)


class _Fields(Fields):
    """The fields of a key or a value."""

    __slots__ = ()
    malformed = MalformedRecord
