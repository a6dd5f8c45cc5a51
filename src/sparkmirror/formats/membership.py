"""Connect's group protocol, to and from bytes: what a worker says when it joins, and what the leader gives each worker to do.

Big-endian integers; a string is its length in bytes (int16) and UTF-8; arrays and bytes have an int32 length, -1 for null.
Every message starts with its version (int16). Fields after the config offset may be missing, as old workers leave them out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from sparkmirror.config.java_order import hash_order
from sparkmirror.errors import KafkaError

from .fields import INT16, INT32, INT64, Fields, string

PROTOCOL_TYPE = "connect"
NO_ERROR = 0
CONFIG_MISMATCH = 1
"""The leader could not catch up with the config offset another worker has seen: read the config topic and join again."""

_CONNECTOR_ITSELF = -1

Task = tuple[str, int]


class MalformedMembership(KafkaError):
    """A member of the group sent what no Connect worker sends."""


class Subprotocol(StrEnum):
    """How a group shares work; the value is its name in the group protocol. Workers agree on the newest all of them offer."""

    EAGER = "default"
    COMPATIBLE = "compatible"
    SESSIONED = "sessioned"

    @property
    def version(self) -> int:
        return (Subprotocol.EAGER, Subprotocol.COMPATIBLE, Subprotocol.SESSIONED).index(self)

    @property
    def offered(self) -> tuple[Subprotocol, ...]:
        """What a worker that is set to this one offers, the preferred one first."""
        newest_first = (Subprotocol.SESSIONED, Subprotocol.COMPATIBLE, Subprotocol.EAGER)
        return newest_first[newest_first.index(self) :]


@dataclass(frozen=True, slots=True)
class Work:
    """Connectors and tasks, in the order in which they are written."""

    connectors: tuple[str, ...] = ()
    tasks: tuple[Task, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerAssignment:
    """What the leader tells one worker. In version 0 `assigned` is everything; later it is what to add, beside `revoked`."""

    leader: str
    leader_url: str
    config_offset: int
    assigned: Work = Work()
    revoked: Work = Work()
    error: int = NO_ERROR
    delay_ms: int = 0

    @property
    def failed(self) -> bool:
        return self.error != NO_ERROR


@dataclass(frozen=True, slots=True)
class WorkerMetadata:
    """What a worker says of itself: where it is asked, how far it has read the config topic, and what it runs."""

    url: str
    config_offset: int
    assignment: WorkerAssignment | None = None


def encode_metadata(metadata: WorkerMetadata, protocol: Subprotocol) -> bytes:
    head = INT16.pack(protocol.version) + _string(metadata.url)
    head += INT64.pack(metadata.config_offset)
    if protocol is Subprotocol.EAGER:
        return head
    if metadata.assignment is None:
        return head + INT32.pack(-1)
    allocation = encode_assignment(metadata.assignment, protocol)
    return head + INT32.pack(len(allocation)) + allocation


def decode_metadata(data: bytes) -> WorkerMetadata:
    """What a worker said of itself, in any version; MalformedMembership if it is something else."""
    fields = _Fields(data, "metadata of a worker")
    fields.version()
    url, offset = fields.string(), fields.int64()
    allocation = None if fields.at_end else fields.nullable_bytes()
    return WorkerMetadata(
        url, offset, None if allocation is None else decode_assignment(allocation)
    )


def encode_assignment(assignment: WorkerAssignment, protocol: Subprotocol) -> bytes:
    # Java keeps assigned connectors in a hash set, so that is their order on the wire.
    head = (
        INT16.pack(protocol.version)
        + INT16.pack(assignment.error)
        + _string(assignment.leader)
        + _string(assignment.leader_url)
        + INT64.pack(assignment.config_offset)
        + _work(hash_order(assignment.assigned.connectors), assignment.assigned.tasks)
    )
    if protocol is Subprotocol.EAGER:
        return head
    revoked = _work(dict.fromkeys(assignment.revoked.connectors), assignment.revoked.tasks)
    return head + revoked + INT32.pack(assignment.delay_ms)


def decode_assignment(data: bytes) -> WorkerAssignment:
    """What a leader assigned, in any version; MalformedMembership if it is something else."""
    fields = _Fields(data, "assignment of a worker")
    fields.version()
    error, leader, url, offset = fields.int16(), fields.string(), fields.string(), fields.int64()
    assigned = Work() if fields.at_end else fields.work()
    revoked = Work() if fields.at_end else fields.work()
    delay = 0 if fields.at_end else fields.int32()
    return WorkerAssignment(leader, url, offset, assigned, revoked, error, delay)


def _work(connectors: Iterable[str], tasks: Iterable[Task]) -> bytes:
    """Connectors with the numbers of their tasks; -1 stands for the connector itself."""
    numbers: dict[str, list[int]] = {name: [_CONNECTOR_ITSELF] for name in connectors}
    for connector, task in tasks:
        numbers.setdefault(connector, []).append(task)
    parts = [INT32.pack(len(numbers))]
    for name, ids in numbers.items():
        parts.append(_string(name) + struct.pack(f">i{len(ids)}i", len(ids), *ids))
    return b"".join(parts)


def _string(text: str) -> bytes:
    return string(text, "the group protocol holds", MalformedMembership)


class _Fields(Fields):
    """The fields of a message."""

    __slots__ = ()
    malformed = MalformedMembership

    def version(self) -> int:
        version = self.int16()
        if version < 0:
            raise MalformedMembership(f"The {self.name} has version {version}.")
        return version

    def work(self) -> Work:
        """Connectors and tasks; null counts as none."""
        connectors: list[str] = []
        tasks: list[Task] = []
        for _ in range(self.int32()):
            name = self.string()
            for _ in range(self.int32()):
                number = self.int32()
                if number == _CONNECTOR_ITSELF:
                    connectors.append(name)
                else:
                    tasks.append((name, number))
        return Work(tuple(connectors), tuple(tasks))
