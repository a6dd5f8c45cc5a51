"""The record as transforms see it, and what transforms and predicates are: the seams of this room."""

from __future__ import annotations

from typing import NamedTuple, Protocol

Headers = list[tuple[str, bytes | None]]


class ConnectRecord(NamedTuple):
    """A record as MM2's source task hands it to Connect: under its remote topic, in its source partition."""

    topic: str
    partition: int
    offset: int
    """In the source partition. No transform changes it."""
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class Transformation(Protocol):
    """Called for every record, from the copy loop: keeps no state, and gives the same answer to the same record always."""

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """The record as it goes on; None if it does not."""

    def route(self, topic: str) -> str | None:
        """The topic that any record of `topic` gets; None if that is up to the record."""


class Predicate(Protocol):
    """Called for every record, as a transformation is."""

    def test(self, record: ConnectRecord) -> bool: ...

    def decide(self, topic: str | None) -> bool | None:
        """The answer for any record of `topic` (None: of any topic); None if that is up to the record."""
