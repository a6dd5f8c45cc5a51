"""Which source offsets an addressed batch holds: of one piece, of several, and of a part of some."""

from __future__ import annotations

import time

from sparkmirror.dataplane.addressing import Addresser, Sent
from sparkmirror.dataplane.stream import Piece, Stream
from sparkmirror.formats.position import Numbering
from sparkmirror.kafka.fetch import READ_COMMITTED
from sparkmirror.kafka.records import decode
from tests.unit.making import batch, fetched, record


def pieces(*offsets: list[int]) -> list[Piece]:
    views = [batch([record(offset) for offset in rows], base=rows[0]) for rows in offsets]
    return Stream(0, READ_COMMITTED).feed(fetched(views))


def addresser(limit: int | None = None) -> Addresser:
    made = Addresser()
    made.begin(Numbering(1, 0), 0)
    if limit is not None:
        made.limit = limit
    return made


def runs(sent: list[Sent]) -> list[list[tuple[int, int]]]:
    return [one.offset_runs() for one in sent]


def test_one_batch() -> None:
    assert runs(addresser().address(pieces([5, 6, 7]))) == [[(5, 3)]]


def test_one_batch_with_gaps() -> None:
    assert runs(addresser().address(pieces([5, 6, 9, 12, 13]))) == [[(5, 2), (9, 1), (12, 2)]]


def test_several_batches_as_one() -> None:
    assert runs(addresser().address(pieces([5, 6], [9, 10], [11]))) == [[(5, 2), (9, 2), (11, 1)]]


def test_one_batch_as_several() -> None:
    found = pieces([5, 6, 7, 8, 20, 21])
    size = len(found[0].view)
    parts = runs(addresser(limit=size).address(found))
    assert len(parts) > 1
    assert [row for part in parts for row in spread(part)] == [5, 6, 7, 8, 20, 21]


def test_the_same_again_in_parts() -> None:
    one = addresser()
    [sent] = one.address(pieces([5, 6], [9, 10, 11]))
    parts = runs(one.again(sent, 2))
    assert [spread(part) for part in parts] == [[5, 6, 9], [10, 11]]


def test_records_without_a_time_get_that_of_the_moment_they_are_written() -> None:
    rows = [record(5)._replace(timestamp=-1), record(6)]
    views = [batch(rows[:1], base=5), batch(rows[1:], base=6)]
    before = int(time.time() * 1000)
    [sent] = addresser().address(Stream(0, READ_COMMITTED).feed(fetched(views)))
    given, kept = decode(memoryview(sent.buffer))
    assert before <= given.timestamp <= time.time() * 1000
    assert kept.timestamp == record(6).timestamp


def spread(found: list[tuple[int, int]]) -> list[int]:
    return [offset for first, count in found for offset in range(first, first + count)]
