"""Positions, and whose word counts in the log that several writers share."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparkmirror.formats.position import (
    MAX_EPOCH,
    NO_FINGERPRINT,
    SEQUENCES,
    SUPERSEDED_MS,
    Entry,
    Fingerprint,
    Fold,
    Numbering,
    Position,
    Superseded,
    TargetPosition,
    advance,
    decode,
    distance,
    encode,
    next_numbering,
    renumbered,
)

sequences = st.integers(0, SEQUENCES - 1)
numberings = st.builds(Numbering, st.integers(0, 3), st.integers(0, 3))
hex_ids = st.sampled_from(["", "00112233445566778899aabbccddeeff"])
numbered = st.builds(
    Position,
    offset=st.integers(-1, 1 << 62),
    numbering=st.builds(Numbering, st.integers(0, 1 << 62), st.integers(0, MAX_EPOCH)),
    sequence=sequences,
    target_offset=st.integers(0, 1 << 62),
    fingerprint=st.builds(Fingerprint, st.integers(-1, 1 << 30), st.integers(-1, (1 << 32) - 1)),
    source_id=hex_ids,
    target_id=hex_ids,
    origin=st.tuples(st.integers(0, 1 << 62), st.integers(0, 1 << 62)),
    stamp=st.integers(0, 1 << 62),
    superseded=st.lists(
        st.builds(Superseded, st.sampled_from(["00" * 16, "ab" * 16]), st.integers(0, 1 << 62)),
        max_size=4,
    ).map(tuple),
)
plain = st.builds(Position, offset=st.integers(-1, 1 << 62))
targets = st.builds(
    TargetPosition,
    st.sampled_from(["A.t", "a-1", "x_y.z"]),
    st.integers(0, 9),
    offset=st.integers(-1, 1 << 62),
    sequence=sequences,
    target_offset=st.integers(0, 1 << 62),
    origin=st.integers(0, 1 << 62),
    target_id=hex_ids,
)
routed = st.builds(
    lambda position, found, transforms, since: replace(
        position,
        sequence=0,
        target_offset=0,
        target_id="",
        transforms=transforms,
        targets=tuple({target.key: target for target in found}.values()),
        since=since,
    ),
    numbered,
    st.lists(targets, max_size=4),
    st.text(max_size=20),
    st.integers(-1, 1 << 62),
)
entries = st.one_of(
    st.builds(Entry, st.one_of(st.none(), plain, numbered, routed)),
    st.builds(Entry, st.one_of(numbered, routed), st.just(True), st.one_of(st.none(), numberings)),
)
few = st.builds(Position, st.integers(-1, 5), st.one_of(st.none(), numberings), st.integers(0, 5))
logs = st.lists(
    st.one_of(
        st.builds(Entry, st.one_of(st.none(), few)),
        st.builds(
            lambda position, number, replaces: Entry(
                replace(position, numbering=number), True, replaces
            ),
            few,
            numberings,
            st.one_of(st.none(), numberings),
        ),
    ),
    max_size=30,
)


# -- the value ------------------------------------------------------------------------------------


@given(entries)
def test_an_entry_survives_its_value(entry: Entry) -> None:
    assert decode(encode(entry)) == entry


@given(st.one_of(numbered, routed))
def test_a_java_worker_reads_the_offset(position: Position) -> None:
    """It takes a value only if every field of it is a number or a text."""
    value = encode(Entry(position))
    assert value is not None
    fields = json.loads(value)
    assert fields["offset"] == position.offset
    assert all(isinstance(field, int | str) for field in fields.values())


def test_a_plain_position_is_exactly_what_mm2_writes() -> None:
    assert encode(Entry(Position(41))) == b'{"offset":41}'
    assert decode(b'{"offset":41}') == Entry(Position(41))


def test_positions_of_the_first_version_are_read() -> None:
    position = Position(7, Numbering(1, 2), 3, 4, Fingerprint(5), "aa", "bb", (6, 8), 9)
    fields = json.loads(encode(Entry(position)) or b"") | {"origin": [6, 8]}
    del fields["crc"]
    assert decode(json.dumps(fields).encode()) == Entry(position)


@given(routed)
def test_positions_without_the_offset_from_which_transforms_apply_are_read(
    position: Position,
) -> None:
    fields = json.loads(encode(Entry(position)) or b"")
    assert fields.pop("since", -1) == position.since
    assert decode(json.dumps(fields).encode()) == Entry(replace(position, since=-1))


@pytest.mark.parametrize("value", [b"", b"{}", b"[]", b"null", b'{"offset":null}', b"\xff", b"7"])
def test_what_is_no_position_is_none(value: bytes) -> None:
    assert decode(value) == Entry(None)


@pytest.mark.parametrize(
    "value",
    [
        b'{"offset":1e999}',
        b'{"offset":Infinity}',
        b'{"offset":9223372036854775808}',
        b'{"offset":' + b"[" * 100_000,
        b'{"offset":' + b"9" * 5000 + b"}",
    ],
)
def test_what_was_made_to_stop_workers_is_no_position_either(value: bytes) -> None:
    """Whoever can write to the offsets topic may have every worker read it."""
    assert decode(value) == Entry(None)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": None},
        {"epoch": 40_000},
        {"pid": float("inf")},
        {"seq": 1 << 31},
        {"target": 1 << 63},
        {"tid": "zz"},
        {"seq": "x"},
        {"origin": []},
        {"origin": 3},
        {"origin": "3"},
        {"replaces": 5},
        {"target": {}},
        {"transforms": "x"},
        {"transforms": "x", "targets": "{"},
        {"transforms": "x", "targets": '{"a/0":[1]}'},
    ],
)
def test_damaged_fields_leave_the_offset(change: dict[str, object]) -> None:
    value = encode(Entry(Position(7, Numbering(1, 2))))
    assert value is not None
    fields = json.loads(value) | change
    assert decode(json.dumps(fields).encode()) == Entry(Position(7))


# -- several targets ------------------------------------------------------------------------------


def reported(offset: int, *found: TargetPosition, number: Numbering = Numbering(5, 1)) -> Entry:  # noqa: B008
    return Entry(Position(offset, number, transforms="x", targets=found))


def test_a_target_that_another_writer_found_first_is_not_forgotten() -> None:
    """A report that is behind does not know it: nothing of it comes up to there."""
    ahead, behind = TargetPosition("a", 0, 9, 4, 104, 100), TargetPosition("b", 0, 3, 2, 2)
    fold = Fold()
    assert fold.apply(reported(9, ahead, behind))
    assert fold.apply(reported(3, behind))
    assert not fold.is_settled
    assert fold.position is not None
    assert fold.position.offset == 3
    assert fold.position.target(("a", 0)) == TargetPosition("a", 0, 3, 0, 100, 100)
    assert fold.position.target(("b", 0)) == behind


def test_a_report_that_names_all_targets_settles_it() -> None:
    one, other = TargetPosition("a", 0, 9, 4, 104, 100), TargetPosition("b", 0, 3, 2, 2)
    fold = Fold()
    for entry in (reported(9, one, other), reported(3, other), reported(9, other, one)):
        assert fold.apply(entry)
    assert fold.is_settled


def test_a_new_numbering_begins_without_the_targets_of_the_old() -> None:
    fold = Fold()
    fold.apply(reported(9, TargetPosition("a", 0, 9, 4, 104, 100)))
    new = Position(9, Numbering(5, 2), transforms="x")
    assert fold.apply(Entry(new, True, Numbering(5, 1)))
    assert fold.position == new
    assert fold.is_settled


def test_a_position_as_one_target_sees_it() -> None:
    position = Position(
        20,
        Numbering(5, 1),
        fingerprint=Fingerprint(3, 77),
        source_id="s",
        origin=(10, 0),
        transforms="x",
        targets=(
            TargetPosition("a", 0, 25, 4, 104, 100, "t"),
            TargetPosition("b", 0, 12, 0, 7, 7, "u"),
        ),
    )
    ahead, idle = (position.at_target(target) for target in position.targets)
    assert ahead == Position(25, Numbering(5, 1), 4, 104, NO_FINGERPRINT, "s", "t", (10, 100))
    assert idle == Position(20, Numbering(5, 1), 0, 7, Fingerprint(3, 77), "s", "u", (21, 7))
    assert idle.is_origin


# -- sequence numbers -----------------------------------------------------------------------------


@given(sequences, st.integers(-(1 << 20), 1 << 20))
def test_distance_undoes_advance(sequence: int, count: int) -> None:
    later = advance(sequence, count)
    assert 0 <= later < SEQUENCES
    assert distance(later, sequence) == count
    assert distance(sequence, later) == -count


@given(sequences, st.integers(0, 1 << 20), st.integers(0, 1 << 20))
def test_steps_add_up(sequence: int, one: int, two: int) -> None:
    assert advance(advance(sequence, one), two) == advance(sequence, one + two)


def test_numbers_wrap_after_the_last() -> None:
    last = SEQUENCES - 1
    assert advance(last, 1) == 0
    assert distance(0, last) == 1
    assert distance(last, 0) == -1
    assert advance(SEQUENCES - 5, 10) == 5


# -- numberings -----------------------------------------------------------------------------------


@given(numbered, st.integers(-1, 1 << 40), st.integers(0, 1 << 40))
def test_a_renumbered_position_begins_at_nought(position: Position, offset: int, end: int) -> None:
    new = renumbered(position, Numbering(5, 6), offset, end, 7)
    assert new.is_origin
    assert new.origin == (offset + 1, end)
    assert (new.numbering, new.stamp, new.target_offset) == (Numbering(5, 6), 7, end)


def test_the_next_numbering_is_the_next_epoch_until_they_run_out() -> None:
    assert next_numbering(Position(0, Numbering(4, 0))) == Numbering(4, 1)
    last = Position(0, Numbering(4, MAX_EPOCH))
    assert next_numbering(last, (9, 0)) == Numbering(9, 0)
    assert next_numbering(Position(0), (9, 0)) == Numbering(9, 0)
    with pytest.raises(ValueError, match="fresh"):
        next_numbering(last)


# -- the fold -------------------------------------------------------------------------------------


def folded(log: list[Entry]) -> Fold:
    fold = Fold()
    for entry in log:
        fold.apply(entry)
    return fold


ONE, TWO = Numbering(1, 0), Numbering(2, 0)


def test_the_first_of_two_claims_counts() -> None:
    first, second = Position(4, ONE), Position(4, TWO)
    fold = folded([Entry(Position(4)), Entry(first, True, None), Entry(second, True, None)])
    assert fold.position == first
    assert not fold.is_settled


def test_a_claim_counts_only_if_it_replaces_what_is_in_force() -> None:
    position, newer = Position(4, ONE), Position(4, replace(ONE, epoch=1))
    begun = [Entry(None), Entry(position, True, None)]
    assert folded([*begun, Entry(newer, True, ONE)]).position == newer
    assert folded([*begun, Entry(newer, True, TWO)]).position == position
    assert folded([*begun, Entry(newer, True, None)]).position == position


def test_progress_counts_only_under_the_numbering_in_force() -> None:
    begun = [Entry(None), Entry(Position(4, ONE), True, None)]
    assert folded([*begun, Entry(Position(9, ONE))]).position == Position(9, ONE)
    assert folded([*begun, Entry(Position(9, TWO))]).position == Position(4, ONE)
    after_reset = folded([*begun, Entry(None), Entry(Position(9, ONE))])
    assert after_reset.position is None
    assert not after_reset.is_settled


def test_a_person_or_a_java_worker_always_counts() -> None:
    begun = [Entry(None), Entry(Position(4, ONE), True, None)]
    assert folded([*begun, Entry(None)]).position is None
    assert folded([*begun, Entry(Position(2))]).position == Position(2)


def test_progress_of_a_later_epoch_heals_a_log_that_lost_the_claim() -> None:
    later = Position(9, replace(ONE, epoch=3))
    begun = [Entry(None), Entry(Position(4, ONE), True, None)]
    assert folded([*begun, Entry(later)]).position == later
    assert folded([*begun, Entry(later), Entry(Position(4, ONE))]).position == later


@given(logs, st.data())
def test_whoever_reads_on_from_somebody_else_agrees(log: list[Entry], data: st.DataObject) -> None:
    place = data.draw(st.integers(1, len(log))) if log else 0
    fold = Fold.taken_over(folded(log[:place]).position)
    for entry in log[place:]:
        fold.apply(entry)
    if place:
        assert fold.position == folded(log).position


@given(logs, st.data())
def test_compaction_changes_nothing_where_the_last_record_counts(
    log: list[Entry], data: st.DataObject
) -> None:
    """The cleaner keeps, of everything before some place, the last record."""
    settled = [place for place in range(1, len(log) + 1) if folded(log[:place]).is_settled]
    if not settled:
        return
    place = data.draw(st.sampled_from(settled))
    whole, compacted = folded(log), folded(log[place - 1 :])
    assert compacted.position == whole.position
    assert compacted.is_settled == whole.is_settled


@dataclass
class Writer:
    """A copy task, as far as the store of positions sees it."""

    fold: Fold
    read_to: int
    held: Position | None = None


class SharedLog(RuleBasedStateMachine):
    """Writers that come, claim, flush and die in any order; people who reset; a cleaner.

    A numbering must never stand for two origins, and whoever has read to the end must agree with everybody else who has.
    """

    def __init__(self) -> None:
        super().__init__()
        self.log: list[Entry] = []
        self.start = 0
        self.writers: list[Writer] = []
        self.granted: dict[Numbering, tuple[int, int]] = {}
        self.next_producer = 0

    def catch_up(self, writer: Writer) -> None:
        """Who finds that compaction took records it had not read yet begins anew with what is left."""
        if writer.read_to < self.start:
            writer.fold, writer.read_to = Fold(), self.start
        for entry in self.log[writer.read_to :]:
            writer.fold.apply(entry)
        writer.read_to = len(self.log)

    def settle(self, writer: Writer) -> None:
        position = writer.fold.position
        if not writer.fold.is_settled and position is not None and position.numbering is not None:
            self.log.append(Entry(position))

    @rule()
    def arrive(self) -> None:
        writer = Writer(Fold(), self.start)
        self.catch_up(writer)
        self.writers.append(writer)

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), dies=st.booleans(), offset=st.integers(0, 9))
    def claim(self, data: st.DataObject, dies: bool, offset: int) -> None:
        """With the view it has: others may have written since."""
        writer = data.draw(st.sampled_from(self.writers))
        position = writer.fold.position
        force = None if position is None else position.numbering
        self.next_producer += 1
        number = (
            Numbering(self.next_producer, 0)
            if force is None
            else replace(force, epoch=force.epoch + 1)
        )
        wanted = Position(offset, number, origin=(offset + 1, len(self.log)))
        self.log.append(Entry(wanted, True, force))
        if dies:
            self.writers.remove(writer)
            return
        self.catch_up(writer)
        self.settle(writer)
        granted = writer.fold.position
        if granted is None or granted.numbering is None:
            return
        assert self.granted.setdefault(granted.numbering, granted.origin) == granted.origin
        writer.held = granted

    @precondition(lambda self: any(writer.held for writer in self.writers))
    @rule(data=st.data(), more=st.integers(1, 5))
    def flush(self, data: st.DataObject, more: int) -> None:
        writer = data.draw(st.sampled_from([w for w in self.writers if w.held]))
        assert writer.held is not None
        held = replace(writer.held, sequence=writer.held.sequence + more)
        writer.held = held
        self.log.append(Entry(held))

    @precondition(lambda self: self.writers)
    @rule(data=st.data())
    def look(self, data: st.DataObject) -> None:
        writer = data.draw(st.sampled_from(self.writers))
        self.catch_up(writer)
        self.settle(writer)

    @rule(position=st.one_of(st.none(), plain))
    def reset(self, position: Position | None) -> None:
        self.log.append(Entry(position))

    @precondition(lambda self: self.log and folded(self.log[self.start :]).is_settled)
    @rule()
    def compact(self) -> None:
        self.start = len(self.log) - 1

    @invariant()
    def everybody_agrees(self) -> None:
        wanted = folded(self.log[self.start :]).position
        for writer in self.writers:
            reader = Writer(Fold.taken_over(writer.fold.position), writer.read_to)
            self.catch_up(reader)
            assert reader.fold.position == wanted


TestSharedLog = SharedLog.TestCase
TestSharedLog.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)


def test_the_ids_that_were_replaced_last_are_remembered_for_an_hour() -> None:
    position = Position(3)
    assert position.superseding("", "a", 0) == position
    assert position.superseding("a", "", 0) == position
    assert position.superseding("a", "a", 0) == position
    for number in range(9):
        position = position.superseding(f"{number}", f"{number + 1}", number)
    assert position.superseded == tuple(Superseded(f"{n}", n) for n in range(5, 9))
    assert position.is_superseded("8", 8 + SUPERSEDED_MS - 1)
    assert not position.is_superseded("8", 8 + SUPERSEDED_MS)
    assert not position.is_superseded("9", 9)
    back = position.superseding("9", "8", 9)  # believed in the end
    assert not back.is_superseded("8", 10)
    assert back.is_superseded("9", 10)
