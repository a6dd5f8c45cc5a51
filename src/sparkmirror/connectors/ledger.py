"""What a flow has put on the target: kept in the worker's offsets topic, so that only that is ever taken away again.

Names with a few fields come in and go out. The keys look like those of a connector that there is not, so neither Java's workers
nor REST show them among the offsets of this one.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from sparkmirror.dataplane.positions import StoreAddress
from sparkmirror.errors import CorruptBatch
from sparkmirror.formats import java_json
from sparkmirror.formats.connect import default_partition
from sparkmirror.kafka import admin, log, records
from sparkmirror.kafka.batches import is_control, whole_batches
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import READ_UNCOMMITTED, FetchLimits
from sparkmirror.kafka.row_batches import Row, append_in_batches

Fields = Mapping[str, str | int]
_LIMITS = FetchLimits(max_wait_ms=100, isolation=READ_UNCOMMITTED)


class Ledger:
    """The entries of one connector of one kind.

    Invariant: what `entries` gives is in the topic; it is read once, since nobody else writes entries of this connector.
    """

    def __init__(self, cluster: Cluster, address: StoreAddress, kind: str) -> None:
        self._cluster = cluster
        self._address = address
        self._owner = f"sparkmirror.{kind}"
        self._entries: dict[str, Fields] | None = None

    def entries(self) -> Mapping[str, Fields]:
        """All there is, by name."""
        if self._entries is None:
            self._cluster.refresh([self._address.topic])
            found: dict[str, Fields] = {}
            for name, fields in self._read():
                if fields is None:
                    found.pop(name, None)
                else:
                    found[name] = fields
            self._entries = found
        return self._entries

    def write(self, changes: Mapping[str, Fields | None]) -> None:
        """Enter, change or (None) strike out entries; they are written when this returns."""
        if not changes:
            return
        known = dict(self.entries())
        rows: dict[int, list[Row]] = {}
        count = len(self._cluster.topic(self._address.topic).partitions)
        for name, fields in changes.items():
            key = self._key(name)
            value = None if fields is None else java_json.encode(fields)
            rows.setdefault(default_partition(key, count), []).append((key, value))
            if fields is None:
                known.pop(name, None)
            else:
                known[name] = fields
        for partition, found in rows.items():
            append_in_batches(self._address.topic, found, partial(self._append, partition))
        self._entries = known

    def _append(self, partition: int, rows: Sequence[Row]) -> None:
        cluster, topic = self._cluster, self._address.topic
        batch = records.control_batch(rows, int(time.time() * 1000))
        deadline = time.monotonic() + cluster.settings.request_timeout
        cluster.retrying(lambda: log.append(cluster, topic, partition, batch), deadline)

    def _key(self, name: str) -> bytes:
        address = self._address
        place = {"connector": address.connector, "cluster": address.source_alias, "name": name}
        return java_json.encode([self._owner, place])

    def _read(self) -> Iterator[tuple[str, Fields | None]]:
        topic = self._address.topic
        keys = [(topic, partition) for partition in self._cluster.topic(topic).partitions]
        starts = admin.list_offsets(self._cluster, keys, admin.EARLIEST)
        ends = admin.list_offsets(self._cluster, keys, admin.LATEST)
        for key in keys:
            for fetched in log.read(self._cluster, *key, starts[key], ends[key], _LIMITS):
                for view in whole_batches(fetched.records):
                    if is_control(view):
                        continue
                    try:
                        found = records.decode_internal(view)
                    except CorruptBatch:  # who reads positions has told of it
                        continue
                    for record in found:
                        name = self._name(record.key)
                        if name is not None:
                            yield name, _fields(record.value)

    def _name(self, key: bytes | None) -> str | None:
        """The name of an entry; None if the key belongs to anything else."""
        if key is None or not key.startswith(b'["sparkmirror.'):
            return None
        try:
            document = java_json.decode(key)
        except ValueError:
            return None
        match document:
            case [
                self._owner,
                {
                    "connector": self._address.connector,
                    "cluster": self._address.source_alias,
                    "name": str(name),
                },
            ]:
                return name
        return None


def _fields(value: bytes | None) -> Fields | None:
    if value is None:
        return None
    try:
        return java_json.fields_of(value)
    except ValueError:
        return None
