"""Connect's offsets topic: who is meant by a record key and which partition the record goes to.

A key is compared as bytes, by Java workers and by compaction: field order, blanks and escapes must
be exactly those of Java's JSON converter, or a worker that takes over finds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkmirror.formats import java_json

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995
# Jackson escapes quotes, backslashes and control characters, nothing else.
_ESCAPES = {code: f"\\u{code:04X}" for code in range(0x20)} | {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\b"): "\\b",
    ord("\f"): "\\f",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}


@dataclass(frozen=True, slots=True)
class SourceOffsetKey:
    """Whose position it is: the partition of a source cluster, as one connector copies it."""

    connector: str
    cluster: str
    topic: str
    partition: int


def source_offset_key(connector: str, cluster: str, topic: str, partition: int) -> bytes:
    """The key under which a source connector keeps the position of one source partition."""
    fields = f'"cluster":{_text(cluster)},"partition":{partition},"topic":{_text(topic)}'
    return _key(connector, fields)


def checkpoint_offset_key(connector: str, group: str, topic: str, partition: int) -> bytes:
    """The key under which a checkpoint connector keeps its (always zero) position."""
    fields = f'"partition":{partition},"topic":{_text(topic)},"group":{_text(group)}'
    return _key(connector, fields)


def heartbeat_offset_key(connector: str, source_alias: str, target_alias: str) -> bytes:
    """The key under which a heartbeat connector keeps its (always zero) position."""
    fields = (
        f'"sourceClusterAlias":{_text(source_alias)},"targetClusterAlias":{_text(target_alias)}'
    )
    return _key(connector, fields)


def parse_source_offset_key(key: bytes) -> SourceOffsetKey | None:
    """The parts of a source connector's key; None for the key of anything else."""
    try:
        document = java_json.decode(key)
    except ValueError:
        return None
    match document:
        case [
            str(connector),
            {"cluster": str(cluster), "topic": str(topic), "partition": int(partition)},
        ] if not isinstance(partition, bool):
            return SourceOffsetKey(connector, cluster, topic, partition)
    return None


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit hash of a record key, as a signed number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for start in range(0, whole, 4):
        k = int.from_bytes(data[start : start + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def default_partition(key: bytes, partitions: int) -> int:
    """The partition, out of `partitions`, to which Kafka's default partitioner sends `key`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def _key(connector: str, fields: str) -> bytes:
    return f"[{_text(connector)},{{{fields}}}]".encode()


def _text(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'
