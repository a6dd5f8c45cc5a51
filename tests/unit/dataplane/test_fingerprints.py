"""The fingerprint that goes with a position is that of the source batch which holds the position's offset, or not known.

A wrong one would make a source without topic ids look like one that was created again, and copy all of it once more.
"""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkmirror.errors import RecordTooLarge
from sparkmirror.kafka import messages
from sparkmirror.kafka.batches import Batch, crc_of
from tests.unit.dataplane.test_partition import NUMBERING, TargetLog, new_copy, singles
from tests.unit.making import batch, fetched, marker, message_set, record

KINDS = ["small", "large", "gap", "aborted", "marker", "timeless", "appended", "legacy", "packed"]
ABORTED, APPENDED = 0x10, 0x08


class Held(NamedTuple):
    """A batch of the source: its checksum and its first and last offset."""

    crc: int
    first: int
    last: int


class SourceLog:
    """A log of all kinds of batches, with the aborted transactions in it."""

    def __init__(self, shapes: list[tuple[str, int]]) -> None:
        self.views: list[memoryview] = []
        self.aborted: list[tuple[int, int]] = []
        self.held: list[Held] = []
        self.end = 0
        for kind, count in shapes:
            self._add(kind, count)

    def _add(self, kind: str, count: int) -> None:
        at = self.end
        rows = [record(at + i, 5000 if kind == "large" else 0) for i in range(count)]
        if kind == "gap":
            rows = [record(at + 2 * i) for i in range(count)]
            self._put(batch(rows, base=at, last=at + 2 * count))
        elif kind == "marker":
            self._put(marker(at, 5, 1))
        elif kind == "aborted":
            self.aborted.append((6, at))
            self._put(batch(rows, base=at, producer=(6, 0, 0), attributes=ABORTED))
            self._put(marker(self.end, 6, 0))
        elif kind == "timeless":
            self._put(batch([row._replace(timestamp=-1) for row in rows], base=at))
        elif kind == "appended":
            self._put(batch(rows, base=at, attributes=APPENDED))
        elif kind == "legacy":
            for row in rows:
                self._put_old(message_set([row], 1), row.offset, row.offset)
        elif kind == "packed":
            self._put_old(message_set(rows, 1, 1), at, rows[-1].offset)
        else:
            self._put(batch(rows, base=at))

    def _put(self, view: memoryview) -> None:
        header = Batch(view)
        self.held.append(Held(crc_of(view), header.base_offset, header.last_offset))
        self.views.append(view)
        self.end = header.last_offset + 1

    def _put_old(self, view: memoryview, first: int, last: int) -> None:
        self.held.append(Held(crc_of(view), first, last))
        self.views.append(view)
        self.end = last + 1

    def crc_at(self, offset: int) -> int | None:
        return next((held.crc for held in self.held if held.first <= offset <= held.last), None)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 5)), min_size=1, max_size=25),
    st.sampled_from([100, 150, 300, 1 << 30]),
    st.integers(1, 6),
    st.data(),
)
def test_the_fingerprint_is_that_of_the_batch_that_holds_the_offset(
    shapes: list[tuple[str, int]], limit: int, step: int, data: st.DataObject
) -> None:
    """Whatever is merged, split, closed, cut, rebuilt or passed over on the way."""
    source = SourceLog(shapes)
    start = data.draw(st.integers(0, source.end))
    copy, log = new_copy(start=start, merge_bytes=100_000), TargetLog(limit=limit)

    def check() -> None:
        position = copy.position
        if position.fingerprint.crc >= 0:
            assert position.fingerprint.crc == source.crc_at(position.offset)

    left = [memoryview(bytearray(view)) for view in source.views]
    while left:
        part, left = left[:step], left[step:]
        copy.feed(fetched(part, aborted=source.aborted))
        check()
        waits = data.draw(st.booleans())
        if left and waits:
            continue
        while (sent := copy.next_batch()) is not None:
            code, base = log.produce(sent.buffer, NUMBERING)
            copy.result(sent, code, base, None)
            if code == messages.MESSAGE_TOO_LARGE:
                try:
                    copy.split_head()
                except RecordTooLarge:
                    return
                copy.resend()
            else:
                assert code == messages.NONE
            check()


def test_parts_of_merged_batches_have_the_fingerprint_of_their_own_batch() -> None:
    views = singles(20)
    crcs = [crc_of(view) for view in views]
    copy, log = new_copy(merge_bytes=100_000), TargetLog(limit=120)
    copy.feed(fetched(views))
    while (sent := copy.next_batch()) is not None:
        code, base = log.produce(sent.buffer, NUMBERING)
        copy.result(sent, code, base, None)
        if code:
            copy.split_head()
            copy.resend()
        else:
            assert copy.position.fingerprint.crc == crcs[copy.position.offset]
