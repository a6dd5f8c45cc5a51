"""Batches of which each may be opened are not opened all at once: a few bytes each may become mebibytes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from sparkmirror.dataplane.addressing import Addresser, Sent
from sparkmirror.dataplane.copy import CopyTask
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan, TaskPlan
from sparkmirror.dataplane.positions import StoreAddress
from sparkmirror.dataplane.query.routing import QueryRouting
from sparkmirror.dataplane.stream import OPENED_AT_ONCE, Piece, Stream
from sparkmirror.formats.position import Numbering
from sparkmirror.kafka.batches import LOG_APPEND_TIME, Batch
from sparkmirror.kafka.compression import OpeningLimit, limit_opening, opening_limit
from sparkmirror.kafka.fetch import READ_COMMITTED
from sparkmirror.kafka.records import NewRecord, decode
from sparkmirror.kafka.settings import ClientSettings
from tests.unit.making import batch, fetched

LARGE = 5 << 20
COUNT = 12


def views(attributes: int = 0) -> list[memoryview]:
    """Batches of some hundred bytes whose only record has five mebibytes."""
    value = bytes(LARGE)
    made = batch([NewRecord(0, 1_700_000_000_000, b"k", value, [])], codec=4, attributes=attributes)
    found = []
    for offset in range(COUNT):
        view = memoryview(bytearray(made))
        view[:8] = offset.to_bytes(8, "big")
        found.append(view)
    assert len(found[0]) < 1000
    return found


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_small_batches_are_merged_as_far_as_they_may_be_opened_together() -> None:
    pieces = Stream(0, READ_COMMITTED).feed(fetched(list(views())))
    assert len(pieces) == COUNT
    addresser = Addresser()
    addresser.begin(Numbering(1, 0), 0)
    sent: list[Sent] = []
    most = peak(lambda: sent.extend(addresser.address(pieces)))
    assert most < 6 * OPENED_AT_ONCE
    assert [each.sequence for each in sent] == [0, *range(3, COUNT)]
    assert [(each.first_offset, each.last_offset) for each in sent] == [
        (0, 2),
        *((offset, offset) for offset in range(3, COUNT)),
    ]
    assert sum(len(decode(memoryview(each.buffer))) for each in sent) == COUNT


def test_of_an_answer_with_batches_that_must_be_opened_the_rest_is_read_again() -> None:
    """As with the time of the source's brokers, or in old formats."""
    log = views(LOG_APPEND_TIME)
    stream = Stream(0, READ_COMMITTED)
    found: list[Piece] = []
    rounds = 0
    while stream.next_offset < COUNT:
        rounds += 1
        pieces = stream.feed(
            fetched([v for v in log if Batch(v).base_offset >= stream.next_offset])
        )
        assert sum(piece.held for piece in pieces) < OPENED_AT_ONCE + 2 * LARGE
        found += pieces
    assert rounds == 3
    assert [piece.first_offset for piece in found] == list(range(COUNT))


def test_no_more_is_merged_than_may_be_opened_again() -> None:
    """Else the batch that we write could not be read by our own readers."""
    limit_opening(OpeningLimit(bytes=8 << 20))
    try:
        pieces = Stream(0, READ_COMMITTED).feed(fetched(list(views())))
        addresser = Addresser()
        addresser.begin(Numbering(1, 0), 0)
        sent = addresser.address(pieces)
        assert [each.count for each in sent] == [1] * COUNT
    finally:
        limit_opening(OpeningLimit())


def test_queries_open_batches_only_so_far_together() -> None:
    pieces = Stream(0, READ_COMMITTED).feed(fetched(list(views())))
    routing = object.__new__(QueryRouting)
    routing._chain, routing._plan = None, PartitionPlan("t", 0, "A.t")
    opened = routing.open(pieces)
    assert [piece for piece, _ in opened.pieces] == pieces[:4], "until it is more than is allowed"
    assert sum(piece.held for piece, _ in opened.pieces) < OPENED_AT_ONCE + 2 * LARGE


def test_a_copy_task_takes_the_limits_of_its_plan() -> None:
    limit = OpeningLimit(bytes=12 << 20, ratio=77)
    settings = ClientSettings("A", (("127.0.0.1", 1),))
    plan = TaskPlan(
        flow="A->B",
        index=0,
        stamp=1,
        source=settings,
        target=settings,
        store=StoreAddress("offsets", "c", "A"),
        settings=CopySettings(opening=limit),
        partitions=(),
    )
    try:
        task = CopyTask(plan)
        task._close()
        assert opening_limit() == limit
    finally:
        limit_opening(OpeningLimit())
