"""Reading positions from the offsets topic, in whatever format its cluster keeps them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.dataplane.positions import PositionStore, StoreAddress
from sparkmirror.formats.position import Entry, Fingerprint, Numbering, Position, encode
from sparkmirror.kafka import admin, log
from sparkmirror.kafka.batches import end_offset, whole_batches
from sparkmirror.kafka.fetch import Fetched
from sparkmirror.kafka.records import NewRecord
from tests.unit.making import batch, fetched, message_set, sealed
from tests.unit.offsets.bombed_log import bombed

NOW = 1_790_000_000_000


def position(offset: int) -> Position:
    return Position(offset, Numbering(7, 1), offset + 1, offset + 1, Fingerprint(0, 1))


def new_store() -> PositionStore:
    cluster = SimpleNamespace(topic=lambda _: SimpleNamespace(partitions={0: None}))
    return PositionStore(cast(Any, cluster), StoreAddress("offsets", "c", "A"))


def offsets_topic(magic: int) -> memoryview:
    """Five positions of two partitions, in turn."""
    store = new_store()
    rows = [("t", 99), ("u", 199), ("t", 299), ("u", 399), ("t", 499)]
    found = [
        NewRecord(n, NOW + n, store.key((topic, 0)), encode(Entry(position(offset))), [])
        for n, (topic, offset) in enumerate(rows)
    ]
    if magic == 2:
        return memoryview(b"".join(bytes(batch([row], base=row.offset)) for row in found))
    return memoryview(b"".join(bytes(message_set([row], magic)) for row in found))


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("seeded", [None, 4])
def test_positions_are_read_in_every_format(
    monkeypatch: pytest.MonkeyPatch, magic: int, seeded: int | None
) -> None:
    """Brokers whose log.message.format.version is below 0.11 keep our batches as messages of magic 0 or 1."""
    raw = offsets_topic(magic)

    def list_offsets(_: Any, keys: Any, timestamp: int, isolation: int = 0) -> dict[Any, int]:
        return dict.fromkeys(keys, 0 if timestamp == admin.EARLIEST else 5)

    def read(_: Any, topic: str, partition: int, start: int, *__: Any) -> Iterator[Fetched]:
        yield fetched([view for view in whole_batches(raw) if end_offset(view) > start])

    monkeypatch.setattr(admin, "list_offsets", list_offsets)
    monkeypatch.setattr(log, "read", read)
    store = new_store()
    if seeded is not None:
        store.seed({("t", 0): position(299), ("u", 0): position(399)}, {0: seeded})
    store.catch_up()
    assert store.read_to == {0: 5}
    assert store.get(("t", 0)) == position(499)
    assert store.get(("u", 0)) == position(399)


def test_a_batch_that_cannot_be_read_is_passed(caplog: pytest.LogCaptureFixture) -> None:
    """Else one record in the offsets topic, which compaction never takes, would stop every flow for good."""
    store = PositionStore(cast(Any, None), StoreAddress("offsets", "c", "A"))
    for view in whole_batches(memoryview(bombed())):
        store._apply(view, 0)
    assert "Topic offsets, from offset 1: a batch of" in caplog.text
    wrong = bytearray(batch([NewRecord(0, 1, b"k", b"v", [("kkkk", None)])]))
    at = bytes(wrong).index(b"kkkk")
    wrong[at : at + 1] = b"\xff"
    store._apply(sealed(wrong), 0)
    assert "from offset 0: the records of a batch cannot be read" in caplog.text
