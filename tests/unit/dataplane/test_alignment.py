"""What a position is worth, what of it lies in the target's log, and how far the target has come where only content tells."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane import anchors
from sparkmirror.dataplane.alignment import Verdict, judge
from sparkmirror.dataplane.anchors import Mark
from sparkmirror.dataplane.tail import _TailReader, end_sequence, mark_of
from sparkmirror.formats.position import SEQUENCES, Numbering, Position, advance
from sparkmirror.kafka.admin import ProducerState
from sparkmirror.kafka.batches import Batch
from sparkmirror.kafka.records import NewRecord
from tests.unit.making import batch, record

NUMBER = Numbering(7, 2)
sequences = st.integers(0, SEQUENCES - 1)


def standing(sequence: int, target_offset: int = 1000) -> Position:
    return Position(499, NUMBER, sequence, target_offset, origin=(100, 50))


# -- judge ----------------------------------------------------------------------------------------


@given(sequences, st.integers(1, 1 << 20))
def test_the_last_number_decides(sequence: int, count: int) -> None:
    """Also across the wrap."""

    def verdict(last: int) -> Verdict:
        return judge(standing(sequence), ProducerState(2, last))

    assert verdict(advance(sequence, -1)) is Verdict.CURRENT
    assert verdict(advance(sequence, count - 1)) is Verdict.AHEAD
    assert verdict(advance(sequence, -1 - count)) is Verdict.BEHIND


@pytest.mark.parametrize(
    ("state", "verdict"),
    [
        (None, Verdict.UNKNOWN),
        (ProducerState(2, -1), Verdict.UNKNOWN),
        (ProducerState(3, 0), Verdict.STALE),
        (ProducerState(3, 41), Verdict.STALE),
        (ProducerState(1, 41), Verdict.BEHIND),
    ],
)
def test_other_epochs(state: ProducerState | None, verdict: Verdict) -> None:
    assert judge(standing(42), state) is verdict


def test_an_older_epoch_is_all_right_before_the_first_record() -> None:
    origin = Position(99, NUMBER, 0, 50, origin=(100, 50))
    assert judge(origin, ProducerState(1, 41)) is Verdict.CURRENT


def test_without_a_numbering_nothing_is_known() -> None:
    assert judge(Position(5), ProducerState(2, 41)) is Verdict.UNKNOWN


# -- the tail -------------------------------------------------------------------------------------


def ours(base: int, sequence: int, count: int, number: Numbering = NUMBER) -> Batch:
    rows = [record(base + index) for index in range(count)]
    producer = (number.producer_id, number.epoch, sequence)
    return Batch(batch(rows, base=base, producer=producer))


def read(position: Position, *batches: Batch) -> _TailReader:
    reader = _TailReader(position)
    for found in batches:
        reader.take(found)
        if reader.is_cut or reader.missing:
            break
    return reader


@given(sequences, st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_a_tail_is_counted_by_its_numbers(
    first: int, counts: list[int], data: st.DataObject
) -> None:
    """Whatever its batches are, with other producers' ones in between, from wherever the position stands."""
    batches, sequence, offset = [], first, 1000
    for count in counts:
        for number in (Numbering(8, 2), Numbering(7, 1)):
            if data.draw(st.booleans()):
                batches.append(ours(offset, sequence, 2, number))
                offset += 2
        batches.append(ours(offset, sequence, count))
        sequence, offset = advance(sequence, count), offset + count
    reader = read(standing(first), *batches)
    assert (reader.sequence, reader.missing, reader.is_cut) == (sequence, 0, False)
    assert reader.last is not None
    assert reader.last.last_offset == offset - 1


def test_a_gap_in_a_whole_log_is_a_gap() -> None:
    reader = read(standing(40), ours(1000, 40, 5), ours(1005, 48, 5), ours(1010, 53, 5))
    assert (reader.sequence, reader.missing) == (45, 3)


def test_a_gap_at_once() -> None:
    """The first batch was refused, and the leader took the second from a producer it did not know."""
    reader = read(standing(40), ours(1000, 45, 5))
    assert (reader.sequence, reader.missing, reader.last) == (40, 5, None)


def test_what_compaction_or_retention_took_is_no_gap() -> None:
    reader = read(standing(40), ours(1000, 40, 5), ours(1008, 48, 5))
    assert (reader.sequence, reader.missing) == (53, 0)
    assert read(standing(40), ours(1003, 43, 5)).sequence == 48


def test_compaction_takes_records_out_of_a_batch_but_not_their_numbers() -> None:
    rows = [record(1000), record(1004)]
    compacted = Batch(batch(rows, base=1000, last=1007, producer=(7, 2, 40)))
    assert compacted.count == 2
    assert end_sequence(compacted) == 48
    assert read(standing(40), compacted).sequence == 48


def test_what_came_late_is_passed_over() -> None:
    reader = read(standing(40), ours(1000, 10, 5), ours(1005, 40, 5))
    assert (reader.sequence, reader.missing, reader.is_cut) == (45, 0, False)
    assert reader.repeated == 5


def test_the_last_acknowledged_batch_must_stand_before_the_position() -> None:
    assert not read(standing(40), ours(995, 35, 5)).is_cut
    assert read(
        standing(40), ours(995, 30, 5)
    ).is_cut  # another one does: the log was cut and went on
    assert read(standing(40), ours(990, 38, 20)).is_cut  # reaches over it
    foreign = ours(995, 35, 5, Numbering(8, 2))
    assert not read(standing(40), foreign).is_cut


# -- content: the source was cut back -------------------------------------------------------------

digests = st.lists(st.integers(0, 3), max_size=12)  # few: the same content again and again


def marks(found: list[int], first: int = 0) -> list[Mark]:
    return [Mark(first + index, None, digest) for index, digest in enumerate(found)]


@given(digests, digests, digests)
def test_common_is_what_both_begin_with(
    both: list[int], replaced: list[int], lost: list[int]
) -> None:
    source, tail = [*both, 8, *replaced], [*both, 9, *lost]
    assert anchors.common(marks(source), marks(tail)) == len(both)
    assert anchors.common(marks(both), marks(tail)) == len(both)
    assert anchors.common(marks(source), marks(both)) == len(both)


@given(digests, digests)
def test_common_passes_over_what_the_target_does_not_have_any_more(
    gone: list[int], both: list[int]
) -> None:
    tail = marks([*both, 9])
    assert anchors.common(marks([*gone, *both, 8]), tail, len(gone)) == len(gone) + len(both)


# -- content: the source lost its beginning -------------------------------------------------------

placed = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=20)


@given(placed, st.data())
def test_overlap_never_claims_more_than_was_copied(
    log: list[tuple[int, bool]], data: st.DataObject
) -> None:
    """A log with transaction markers in between; some of it copied, some of it deleted."""
    stream = [
        Mark(offset, None, digest)
        for offset, (digest, is_marker) in enumerate(log)
        if not is_marker
    ]
    copied = data.draw(st.integers(0, len(stream)))
    first = data.draw(st.integers(0, len(log)))
    left = [mark for mark in stream if mark.offset >= first]
    truth = sum(mark.offset >= first for mark in stream[:copied])
    found = anchors.overlap(left, stream[:copied], copied - 1)
    assert found <= truth
    if len(stream) == len(log):  # without markers, offsets tell exactly
        assert found == truth


def test_overlap_trusts_nothing_that_the_content_denies() -> None:
    assert anchors.overlap(marks([5, 6, 7], 10), marks([1, 2, 3]), 11) == 0


# -- content: records without a time ----------------------------------------------------------------

MOMENT = 1_700_000_000_000
pasts = st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=12)


def sides(rows: list[tuple[int, bool]]) -> tuple[list[Mark], list[Mark]]:
    """Source records of which some have a time, and their copies: those that have none got one when they were copied."""
    source, target = [], []
    for offset, (value, is_timed) in enumerate(rows):
        time = offset if is_timed else -1
        row = NewRecord(offset, time, b"k", b"%d" % value, [])
        source.append(mark_of(row, has_times=True))
        copied_at = row.timestamp if is_timed else MOMENT + offset
        target.append(mark_of(row._replace(timestamp=copied_at), has_times=True))
    return source, target


@given(pasts, pasts, st.integers(0, 12))
def test_a_copy_is_recognized_though_its_record_had_no_time(
    rows: list[tuple[int, bool]], lost: list[tuple[int, bool]], first: int
) -> None:
    source, target = sides(rows)
    assert anchors.common(source, target) == len(rows)
    assert len(anchors.covered(source, target)) == len(rows)
    left = source[first:]
    assert anchors.overlap(left, target, len(rows) - 1) == len(left)
    other = sides([(value + 5, is_timed) for value, is_timed in lost])[1]
    assert anchors.common(source, other) == 0, "the content still counts"


def test_a_time_that_the_record_has_still_counts() -> None:
    row = NewRecord(0, 5, b"k", b"v", [])
    copy = mark_of(row._replace(timestamp=6), has_times=True)
    assert anchors.common([mark_of(row, has_times=True)], [copy]) == 0
    assert anchors.common([mark_of(row, has_times=False)], [mark_of(row, has_times=False)]) == 1


# -- content: compaction --------------------------------------------------------------------------

values = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d"]), st.integers(0, 2)), max_size=20
)
Row = tuple[bytes, int]


def compacted(rows: list[tuple[int, Row]], clean: int) -> list[tuple[int, Row]]:
    """What the cleaner leaves if it has come to place `clean`: of each key there the last."""
    last = {row[0]: offset for offset, row in rows[:clean]}
    return [(offset, row) for offset, row in rows[:clean] if last[row[0]] == offset] + rows[clean:]


def keyed(rows: list[tuple[int, Row]]) -> list[Mark]:
    return [Mark(offset, row[0], hash(row)) for offset, row in rows]


@given(values, st.data())
def test_covered_leaves_no_key_without_its_last_value(log: list[Row], data: st.DataObject) -> None:
    """Both cleaners may have run up to anywhere since; the same value may come again."""
    stream = list(enumerate(log))
    copied = data.draw(st.integers(0, len(log)))
    source = compacted(stream, data.draw(st.integers(0, len(log))))
    target = compacted(stream[:copied], data.draw(st.integers(0, copied)))
    found = anchors.covered(keyed(source)[:copied], keyed(target))
    after = dict(row for _, row in target) | dict(row for _, row in source[len(found) :])
    assert after == dict(log)
    copies = [copy for _, copy in found if copy is not None]
    assert copies == sorted(copies, key=lambda mark: mark.offset)
    assert all(copy is None or copy.digest == mark.digest for mark, copy in found)


@given(values, st.data())
def test_covered_repeats_nothing_if_no_cleaner_ran(log: list[Row], data: st.DataObject) -> None:
    copied = data.draw(st.integers(0, len(log)))
    found = [Mark(place, key, hash((key, value, place))) for place, (key, value) in enumerate(log)]
    assert anchors.covered(found, found[:copied]) == [(mark, mark) for mark in found[:copied]]
