"""Ask one broker what it knows of its cluster.

An address comes in, the brokers, topics and lagging replicas it sees go out. This is a Metadata request written
by hand: the clusters of tests must be judged by something other than the client under test.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_METADATA, _VERSION = 3, 1
_REQUEST = struct.pack(">hhih5si", _METADATA, _VERSION, 0, 5, b"probe", -1)
_ANSWER_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class ClusterView:
    """What a broker sees: live brokers, topics, and the replicas that are not in sync with their leader."""

    brokers: frozenset[int]
    topics: frozenset[str]
    lagging: frozenset[int]
    leaderless: int

    def serves(self, node: int) -> bool:
        """Whether `node` is registered, unfenced and in sync everywhere."""
        return node in self.brokers and node not in self.lagging


class _Answer:
    """A cursor over the bytes of a response."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self, code: str) -> int:
        value: int = struct.unpack_from(f">{code}", self._data, self._at)[0]
        self._at += struct.calcsize(f">{code}")
        return value

    def string(self) -> str:
        """A string; empty if there is none."""
        length = max(self.number("h"), 0)
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def numbers(self) -> list[int]:
        return [self.number("i") for _ in range(self.number("i"))]


def probe(port: int, host: str = "127.0.0.1") -> ClusterView | None:
    """The view of the broker at `port` of a host, or None while it does not answer."""
    try:
        with socket.create_connection((host, port), timeout=_ANSWER_TIMEOUT_S) as connection:
            connection.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
            size = struct.unpack(">i", _receive(connection, 4))[0]
            return _parse(_receive(connection, size))
    except OSError:
        return None


def _receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the broker closed the connection half-way")
        data += part
    return bytes(data)


def _parse(data: bytes) -> ClusterView:
    answer = _Answer(data)
    answer.number("i")  # correlation id
    brokers = frozenset(_broker(answer) for _ in range(answer.number("i")))
    answer.number("i")  # controller id
    topics: set[str] = set()
    lagging: set[int] = set()
    leaderless = 0
    for _ in range(answer.number("i")):
        answer.number("h")  # error
        topics.add(answer.string())
        answer.number("b")  # internal
        for _ in range(answer.number("i")):
            answer.number("h")  # error
            answer.number("i")  # index
            leaderless += answer.number("i") < 0
            replicas, in_sync = answer.numbers(), answer.numbers()
            lagging |= set(replicas) - set(in_sync)
    return ClusterView(brokers, frozenset(topics), frozenset(lagging), leaderless)


def _broker(answer: _Answer) -> int:
    node = answer.number("i")
    answer.string()  # host
    answer.number("i")  # port
    answer.string()  # rack
    return node
