"""The offsets of all connectors: rows of tasks and wishes of people in, what each connector has reached out.

Kept in the worker's offsets topic, byte for byte as Java's workers keep it. Source positions carry fields of ours beside MM2's
`offset` (see `formats.position`), and which of several writers counts is decided as the copy tasks decide it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkmirror.errors import ConnectError, KafkaError
from sparkmirror.formats import java_json
from sparkmirror.formats import position as positions
from sparkmirror.formats.connect import parse_source_offset_key
from sparkmirror.formats.position import Fold

from .offset_rules import ConnectorKind, SourceOffset, SourcePartition, check
from .topic_log import STOP_S, LogFactory, Row

__all__ = ["ConnectorKind", "OffsetStore"]

_TIMEOUT_S = 30.0


@dataclass(slots=True)
class _Entry:
    """What is known of one key. `fold` decides for source partitions; other keys have one writer."""

    fold: Fold | None
    value: bytes | None = None

    def take(self, value: bytes | None) -> None:
        if self.fold is None or self.fold.apply(positions.decode(value)):
            self.value = value


class OffsetStore:
    """One worker's view of the offsets topic. Every call may come from any thread.

    Invariants: `_entries` holds, per connector and key, the last value that counts, None after a reset. Keys are kept and
    written as bytes: nothing here changes the bytes of a key that somebody else wrote.
    """

    def __init__(self, log_factory: LogFactory, *, timeout: float = _TIMEOUT_S) -> None:
        self._log = log_factory(self._read)
        self._timeout = timeout
        self._entries: dict[str, dict[bytes, _Entry]] = {}
        self._owners: dict[bytes, str | None] = {}
        self._caching = threading.Lock()

    def start(self) -> None:
        self._log.start()

    def stop(self, timeout: float = STOP_S) -> None:
        self._log.stop(timeout)

    @property
    def is_ready(self) -> bool:
        return self._log.is_ready

    # -- reading ------------------------------------------------------------------------------

    def load(self, connector: str) -> dict[bytes, bytes]:
        """What the topic holds of a connector now, by key."""
        self._log.read_to_end(self._timeout)
        with self._caching:
            return {
                key: entry.value
                for key, entry in self._entries.get(connector, {}).items()
                if entry.value is not None
            }

    def offsets(self, connector: str) -> list[tuple[SourcePartition, Mapping[str, Any]]]:
        """What people are shown: partitions and offsets, in the order of their keys."""
        return [
            (java_json.decode(key)[1], shown)
            for key, value in sorted(self.load(connector).items())
            if (shown := _shown(value)) is not None
        ]

    def _read(
        self, _partition: int, _offset: int, key: bytes | None, value: bytes | None, _time: int
    ) -> None:
        if key is None:
            return
        with self._caching:
            if key not in self._owners:
                self._owners[key] = _owner(key)
            owner = self._owners[key]
            if owner is None:
                return
            known = self._entries.setdefault(owner, {})
            entry = known.get(key)
            if entry is None:
                is_source = parse_source_offset_key(key) is not None
                entry = known[key] = _Entry(Fold() if is_source else None)
            entry.take(value)

    # -- writing ------------------------------------------------------------------------------

    def append(self, rows: Sequence[Row]) -> None:
        """Write rows of tasks, and wait until they are written."""
        try:
            self._log.append(rows, self._timeout)
        except KafkaError as error:
            raise ConnectError(
                f"Offsets could not be written: {error.message}", error.remedy
            ) from error

    def alter(
        self,
        connector: str,
        kind: ConnectorKind,
        offsets: Sequence[tuple[SourcePartition | None, SourceOffset]],
    ) -> None:
        """Set offsets as a person wishes, all or none; None takes one away. The connector must not be running.

        A position is written as MM2's bare offset, which ends the numbering that was in force: copying goes on after it.
        """
        rows: dict[bytes, bytes | None] = {}
        for partition, offset in offsets:
            check(kind, partition, offset)
            key = java_json.encode([connector, java_json.hash_ordered(partition)])
            rows[key] = None if offset is None else java_json.encode({"offset": offset["offset"]})
        self._write(f"The offsets of connector {connector}", list(rows.items()))

    def reset(self, connector: str) -> None:
        """Take all offsets of a connector away. The connector must not be running."""
        rows: list[Row] = [(key, None) for key in self.load(connector)]
        self._write(f"The reset of the offsets of connector {connector}", rows)

    def _write(self, what: str, rows: Sequence[Row]) -> None:
        deadline = time.monotonic() + self._timeout
        try:
            ends = self._log.append(rows, self._timeout)
        except KafkaError as error:
            raise ConnectError(
                f"{what} could not be written: {error.message}", error.remedy
            ) from error
        self._log.await_delivery(ends, max(0.1, deadline - time.monotonic()))


def _owner(key: bytes) -> str | None:
    """The connector that a key belongs to."""
    try:
        document = java_json.decode(key)
    except ValueError:
        return None
    match document:
        case [str(connector), _]:
            return connector
    return None


def _shown(value: bytes) -> Mapping[str, Any] | None:
    """An offset without the fields that only our tasks read; None if nothing has been copied yet."""
    try:
        fields = java_json.decode(value)
    except ValueError:
        return None
    if not isinstance(fields, dict):
        return None
    entry = positions.decode(value)
    if entry.position is not None and entry.position.numbering is not None:
        return {"offset": entry.position.offset} if entry.position.offset >= 0 else None
    return fields
