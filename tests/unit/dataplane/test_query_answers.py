"""What a query has said already: when Spark need not be asked, and when it must be."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.query.answers import Answers, Keys
from sparkmirror.dataplane.query.columns import NUMBER, Edit, Feed, Prepared, left, place
from sparkmirror.dataplane.query.feeding import Feeder
from sparkmirror.dataplane.query.frames import Kind
from sparkmirror.dataplane.query.slices import Given
from sparkmirror.transforms.record import ConnectRecord
from tests.unit.dataplane.query_hub import (
    TERMS,
    VALUE,
    Bench,
    Partition,
    bench,
    carefully,
    record,
    turned,
)

KIND = Feed(frozenset(), {"value": ("$.kind",)})
ROUTING = Prepared(3, VALUE, frozenset({"topic"}), KIND, is_steady=True)


def said(keys: Keys, says: Callable[[object], str | None]) -> Given:
    """What a query gives as topic of rows of which it is given these."""
    kept = [(at, says(key)) for at, key in enumerate(keys) if says(key) is not None]
    return Given([at for at, _ in kept], {"topic": [text for _, text in kept]} if kept else {})


def by_length(key: object) -> str | None:
    return None if key is None or len(str(key)) % 3 == 0 else f"t-{key}"


def are_of_use(answers: Answers) -> bool:
    return answers.are_of_use


def is_busy(made: Bench) -> bool:
    return made.desk.is_busy


# -- answers ----------------------------------------------------------------------------------------


@given(
    st.lists(
        st.lists(st.one_of(st.none(), st.sampled_from("abcdefghij").map(lambda c: (c * 7,)))),
        max_size=20,
    ),
    st.booleans(),
)
def test_what_is_known_is_what_the_query_would_say(slices: list[Keys], is_rest: bool) -> None:
    answers = Answers(ROUTING)
    for keys in slices:
        rows, columns = said(keys, by_length)
        if are_of_use(answers):
            found, unknown = answers.of(keys)
            assert [at for at, key in enumerate(keys) if key is None] == [
                at for at in unknown if keys[at] is None
            ]
            expected = [
                (at, text)
                for at, text in zip(rows, columns.get("topic", []), strict=True)
                if at not in unknown
            ]
            assert list(zip(found.rows, found.columns.get("topic", []), strict=True)) == expected
        answers.learn(keys, Given(rows, columns), is_rest=is_rest)


def test_what_was_learned_is_known_dropped_or_kept() -> None:
    answers = Answers(ROUTING)
    assert not are_of_use(answers)
    lesson = Given([0, 2], {"topic": ["t-a", "t-a"]})
    answers.learn([("a",), ("b",), ("a",)], lesson, is_rest=False)
    assert are_of_use(answers)
    found = answers.of([("b",), ("a",), ("c",), None, ("a",)])
    assert found == (Given([1, 4], {"topic": ["t-a", "t-a"]}), [2, 3])


def test_what_spark_is_not_asked_of_is_made_behind_it_as_ever() -> None:
    """Columns that are edited are null in what Spark says."""
    edits = {"value": Edit("value", (("a", "b"),))}
    masking = Prepared(3, VALUE, VALUE, Feed(frozenset(), {}, VALUE), edits, is_steady=True)
    answers = Answers(masking)
    answers.learn([(), ()], Given([0, 1], {"value": [None, None]}), is_rest=False)
    assert answers.of([(), None, ()]) == (Given([0, 2], {"value": [None, None]}), [1])


def test_a_query_whose_records_all_differ_is_left_to_spark_for_a_while() -> None:
    answers = Answers(ROUTING)
    unlike: Keys = [(str(n),) for n in range(2000)]
    alike: Keys = [("a",)] * 2000
    answers.learn(unlike, said(unlike, by_length), is_rest=False)
    assert not are_of_use(answers)
    slices = 0
    while not are_of_use(answers):
        answers.pass_by(2000)
        answers.learn(alike, said(alike, by_length), is_rest=False)
        slices += 1
        assert slices < 100
    assert slices > 10
    assert answers.of(alike)[1] == []
    assert answers.of(unlike)[1] == list(range(2000))
    assert not are_of_use(answers)


def test_what_is_left_of_slices_is_learned_however_much_it_differs() -> None:
    """Many records are of a few kinds; among the others are hundreds in every slice."""
    answers = Answers(ROUTING)
    answers.learn([("hot",)], said([("hot",)], by_length), is_rest=False)
    for number in range(30):
        keys: Keys = [("hot",)] * 1500 + [(f"{number % 15}-{n}",) for n in range(500)]
        assert are_of_use(answers)
        unknown = answers.of(keys)[1]
        rest = [keys[at] for at in unknown]
        answers.learn(rest, said(rest, by_length), is_rest=True)
        assert len(unknown) == (500 if number < 15 else 0)


def test_slices_of_single_records_are_learned_too() -> None:
    answers = Answers(ROUTING)
    asked = 0
    for number in range(3000):
        keys: Keys = [(str(number % 10),)]
        unknown = answers.of(keys)[1] if are_of_use(answers) else [0]
        if unknown:
            asked += 1
            answers.pass_by(1)
            answers.learn(keys, said(keys, by_length), is_rest=False)
    assert asked == 10


def test_only_so_much_is_kept_and_what_is_asked_for_longest() -> None:
    answers = Answers(ROUTING)
    hot: Keys = [("hot",)] * 3
    answers.learn(hot, said(hot, by_length), is_rest=True)
    for number in range(200):
        keys: Keys = [*hot, *((f"{number}-{n}",) for n in range(100))]
        assert 0 not in answers.of(keys)[1]
        answers.learn(keys[3:], said(keys[3:], by_length), is_rest=True)
        assert len(answers._known) <= 8192
    long = ("x" * 5000,)
    answers.learn([long], Given([0], {"topic": ["t"]}), is_rest=True)
    answers.learn([("short",)], Given([0], {"topic": ["t" * 5000]}), is_rest=True)
    assert answers.of([*hot, long, ("short",)])[1] == [3, 4]


@pytest.mark.parametrize("column", ["offset", "timestamp", "key", "value", "headers"])
def test_answers_are_kept_only_where_few_differ(column: str) -> None:
    assert Answers(ROUTING).may_be_kept
    assert not Answers(replace(ROUTING, is_steady=False)).may_be_kept
    columns = frozenset({"topic", "partition"})
    assert Answers(replace(ROUTING, feed=replace(KIND, columns=columns))).may_be_kept
    wide = replace(KIND, columns=columns | {column})
    assert not Answers(replace(ROUTING, feed=wide)).may_be_kept


# -- what rows are known by -------------------------------------------------------------------------


def test_rows_are_known_by_all_that_spark_is_given() -> None:
    feed = Feed(
        frozenset({"topic", "partition"}), {"key": ("$.k",), "value": ("$.a", "$.b")}, VALUE
    )
    rows = [
        ConnectRecord("t", 1, 0, 0, b'{"k":1}', b'{"a":"x"}', []),
        ConnectRecord("u", 1, 1, 0, None, b'{"b":true}', []),
        ConnectRecord("t", 1, 2, 0, None, b'{"a":0.5}', []),  # left to Spark
        ConnectRecord("t", 1, 3, 0, b'{"k":1}', b'{"a":"x"}', [("h", b"")]),
        ConnectRecord("t", 1, 4, 0, b'{"k":1}', b"\xff", []),  # no text
    ]
    keys = Feeder(Prepared(1, VALUE, VALUE, feed)).fed(rows).keys
    one = ("t", 1, "1", "x", None)
    assert keys == [one, ("u", 1, None, None, "true"), None, one, None]
    nothing = Feed(frozenset(), {}, VALUE)
    found = Feeder(Prepared(1, VALUE, VALUE, nothing)).fed(rows).keys
    assert found == [(), (), (), (), None]


# -- a desk -----------------------------------------------------------------------------------------

FILTER = Prepared(3, VALUE, frozenset(), KIND, is_steady=True)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with bench(monkeypatch, FILTER) as found:
        found.desk.prepare(TERMS)
        yield found


def without_orders(batch: pa.RecordBatch) -> pa.RecordBatch:
    kinds = batch.column(place("value", "$.kind")).to_pylist()
    documents = batch.column(left("value")).to_pylist()
    kept = [
        number
        for number, kind, document in zip(
            batch.column(NUMBER).to_pylist(), kinds, documents, strict=True
        )
        if (kind is not None and kind != "order") or document is not None
    ]
    return pa.RecordBatch.from_arrays([pa.array(kept, pa.int64())], names=[NUMBER])


def events(*kinds: object) -> list[ConnectRecord]:
    values = [b'{"kind":%s}' % str(kind).encode() for kind in kinds]
    return [record(n, value) for n, value in enumerate(values)]


def rows_of(found: Partition) -> list[list[int]]:
    return [piece.given.rows for piece in found.answers]


def through_spark(made: Bench, taker: Partition, count: int) -> None:
    """One job, which gets so many records."""
    made.hub.waiting(made.desk)
    job = made.job()
    batches = job.take()
    assert sum(batch.num_rows for batch in batches) == count
    job.give(*map(without_orders, batches))
    answered = len(taker.answers)
    made.tell(Kind.DONE, job)
    turned(made.desk, lambda: len(taker.answers) > answered)


ORDER, OTHER, THIRD, FRACTION = '"order"', '"invoice"', '"refund"', "0.5"


def test_what_was_said_once_is_not_asked_again(made: Bench) -> None:
    found = Partition([events(ORDER, OTHER, OTHER)])
    made.desk.offer(made.prepared, found)
    through_spark(made, found, 3)
    found.slices += [events(OTHER, ORDER), events(ORDER, ORDER), events(OTHER)]
    made.desk.offer(made.prepared, found)
    assert is_busy(made)
    turned(made.desk, lambda: len(found.answers) == 4)
    assert rows_of(found) == [[1, 2], [0], [], [0]]
    assert not is_busy(made)
    assert made.hub.heard.empty()


def test_only_what_is_not_known_goes_to_spark(made: Bench) -> None:
    found = Partition([events(ORDER, OTHER)])
    made.desk.offer(made.prepared, found)
    through_spark(made, found, 2)
    mixed = events(OTHER, FRACTION, ORDER, THIRD, OTHER)
    found.slices += [mixed, events(OTHER), mixed]
    made.desk.offer(made.prepared, found)
    turned(made.desk, lambda: not is_busy(made))
    assert len(found.answers) == 2  # the one that is known
    through_spark(made, found, 4)
    turned(made.desk, lambda: len(found.answers) == 4)
    assert rows_of(found) == [[1], [0], [0, 1, 3, 4], [0, 1, 3, 4]]
    found.slices += [mixed]
    made.desk.offer(made.prepared, found)
    made.desk.turn()
    through_spark(made, found, 1)  # what Spark reads itself is not kept
    assert rows_of(found)[4:] == [[0, 1, 3, 4]]


def test_a_job_that_failed_has_said_nothing(made: Bench) -> None:
    found = Partition([events(ORDER, OTHER)])
    made.desk.offer(made.prepared, found)
    made.hub.waiting(made.desk)
    job = made.job()
    job.give(*map(without_orders, job.take()))
    made.fail(job, "lost")
    through_spark(made, found, 2)
    assert rows_of(found) == [[1]]


def test_of_a_careful_job_nothing_is_kept(made: Bench) -> None:
    found = Partition([events(ORDER, OTHER)])
    made.desk.offer(made.prepared, found)
    made.hub.waiting(made.desk)
    job = made.job(careful=True)
    job.give(*(carefully(batch, lambda _: False) for batch in job.take()))
    made.tell(Kind.DONE, job)
    turned(made.desk, lambda: found.answers)
    found.slices += [events(OTHER)]
    made.desk.offer(made.prepared, found)
    assert not is_busy(made)
    through_spark(made, found, 1)


def test_one_who_asks_and_waits_hears_what_is_known(made: Bench) -> None:
    found = Partition([events(ORDER, OTHER)])
    made.desk.offer(made.prepared, found)
    through_spark(made, found, 2)
    answers = made.desk.ask_all(made.prepared, [events(OTHER, ORDER), events(ORDER)])
    assert [piece.given.rows for piece in answers] == [[0], []]
    assert made.hub.heard.empty()


def test_who_is_forgotten_is_not_answered(made: Bench) -> None:
    found = Partition([events(ORDER, OTHER)])
    made.desk.offer(made.prepared, found)
    through_spark(made, found, 2)
    found.slices += [events(OTHER)]
    made.desk.offer(made.prepared, found)
    made.desk.forget(found)
    assert not is_busy(made)
    made.settle()
    assert len(found.answers) == 1


def test_prepared_queries_say_whether_they_are_steady() -> None:
    for each in (ROUTING, replace(ROUTING, is_steady=False)):
        assert Prepared.read(each.fields) == each
