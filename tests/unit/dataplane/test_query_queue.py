"""The slices of a query whatever becomes of its jobs: every record gets the answer that it should, and nobody is left waiting."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from sparkmirror.dataplane.query import answers, parts
from sparkmirror.dataplane.query.columns import (
    DROPPED,
    ERROR,
    KEPT,
    NUMBER,
    RAISED,
    STATE,
    Edit,
    Feed,
    Prepared,
    first_number,
    left,
    missing,
    place,
    unfit,
)
from sparkmirror.dataplane.query.feeding import schema_of
from sparkmirror.dataplane.query.parts import Slice
from sparkmirror.dataplane.query.queue import SliceQueue
from sparkmirror.errors import QueryFailed
from sparkmirror.transforms.record import ConnectRecord

KEY, VALUE = frozenset({"key"}), frozenset({"value"})
FEED = Feed(frozenset({"partition"}), {"value": ("$.kind",)}, VALUE, KEY)
EDITS = {"value": Edit("value", (("a+", "b"),))}
NEEDS = frozenset({"key", "partition", "value"})
PREPARED = Prepared(1, NEEDS, frozenset({"topic", "value"}), FEED, EDITS, is_steady=True)


class RaisedError(Exception):
    """What the query does on a bad record."""


def kind_of(value: bytes | None) -> str | None:
    try:
        document = json.loads(value or b"")
    except ValueError:
        return None
    kind = document.get("kind") if isinstance(document, dict) else None
    return kind if kind is None or isinstance(kind, str) else json.dumps(kind)


def topic_of(kind: str | None, has_key: bool, partition: int) -> str | None:
    """The query: None drops, RaisedError is a bad record."""
    if kind == "bad":
        raise RaisedError
    if kind in ("order", "0.25"):
        return None
    if kind is None:
        return "none" if has_key else None
    return f"t-{kind}-{has_key}-{partition}"


def masked(value: bytes | None) -> bytes | None:
    try:
        return None if value is None else re.sub("a+", "b", value.decode()).encode()
    except UnicodeDecodeError:
        return b"made by Spark: " + (value or b"")


def plainly(batch: pa.RecordBatch) -> pa.RecordBatch:
    """What Spark makes of a slice; RaisedError if one of it is bad."""
    found: list[tuple[int, str, bytes | None]] = []
    for row in batch.to_pylist():
        document = row[left("value")]
        kind = row[place("value", "$.kind")] if document is None else kind_of(document)
        topic = topic_of(kind, not row[missing("key")], row["partition"])
        if topic is not None:
            odd = row[unfit("value")]
            found.append((row[NUMBER], topic, None if odd is None else masked(odd)))
    return _batch(found, {NUMBER: pa.int64(), "topic": pa.string(), "value": pa.binary()})


def carefully(batch: pa.RecordBatch, said: str | None) -> pa.RecordBatch:
    """The same by the careful plan, without what is dropped."""
    found: list[tuple[Any, ...]] = []
    for row in batch.to_pylist():
        try:
            topic = topic_of(kind_of(row["value"]), row["key"] is not None, row["partition"])
        except RaisedError:
            found.append((RAISED, said, row[NUMBER], None, None))
            continue
        state = DROPPED if topic is None else KEPT
        if state != DROPPED:
            found.append((state, None, row[NUMBER], topic, masked(row["value"])))
    names = {STATE: pa.int32(), ERROR: pa.string(), NUMBER: pa.int64()}
    return _batch(found, {**names, "topic": pa.string(), "value": pa.binary()})


def _batch(rows: list[Any], types: dict[str, pa.DataType]) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) or [()] * len(types)
    arrays = [pa.array(c, kind) for c, kind in zip(columns, types.values(), strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


@dataclass(eq=False)
class Partition:
    """A taker that has a few slices open at most."""

    queue: SliceQueue
    slices: list[list[ConnectRecord]]
    open: list[Slice] = field(default_factory=list)
    done: list[Slice] = field(default_factory=list)
    most: int = 4

    @property
    def is_wanting(self) -> bool:
        return bool(self.slices) and len(self.open) < self.most

    def next_slice(self) -> Slice | None:
        if not self.is_wanting:
            return None
        self.open.append(Slice(self.slices.pop(0), self))
        return self.open[-1]

    def answered(self, piece: Slice) -> None:
        self.open.remove(piece)
        self.done.append(piece)
        if self.is_wanting:
            self.queue.offer(self)

    def failed(self, piece: Slice, error: QueryFailed) -> None:
        raise error

    @property
    def is_waiting(self) -> bool:
        return bool(self.slices or self.open)


@dataclass
class Spark:
    """Runs jobs as the driver does, and lets misfortunes happen to them."""

    queue: SliceQueue
    chance: random.Random
    misfortune: float = 0.0
    says: str | None = None
    has_careful: bool = False
    is_careful: bool = False
    was_alone: bool = False
    rows: int = 0
    """That it was given."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def turn(self) -> bool:
        """Some answers without a job, then a job if there is anything for one; whether anything happened."""
        moved = False
        for _ in range(self.chance.randrange(1, 4)):
            if self.queue.may_answer:
                self.queue.answer()
                moved = True
        return self.job() or moved

    def job(self) -> bool:
        alone, plenty = self.queue.there
        if not alone and not plenty:
            return False
        is_alone = alone and (not self.was_alone or not plenty)
        self.was_alone = is_alone
        careful = self.is_careful and not is_alone
        self.queue.begin(next(self.numbers), is_hunting=is_alone)
        batches = list(self._taken(careful))
        self.rows += sum(batch.num_rows for batch in batches)
        if self.chance.random() < self.misfortune:
            self.queue.failed("lost", QueryFailed("lost", ""))
            self.queue._losses = 0
            return True
        try:
            results = [carefully(b, self.says) if careful else plainly(b) for b in batches]
        except RaisedError:
            sift = self.has_careful and not is_alone
            self.is_careful |= sift
            self.queue.failed("sift" if sift else "query", QueryFailed("it raised", ""))
            return True
        for batch in results:
            cut = self.chance.randrange(batch.num_rows + 1)
            for some in (batch.slice(0, cut), batch.slice(cut)):
                if some.num_rows:
                    self.queue.take_in(some)
        self.is_careful &= self.chance.random() < 0.8
        self.queue.done()
        return True

    def _taken(self, careful: bool) -> Iterator[pa.RecordBatch]:
        schema = schema_of(Feed(NEEDS) if careful else FEED)
        for _ in range(self.chance.choice([1, 2, 5, 50])):
            if self.chance.random() < 0.3 and self.queue.may_answer:
                self.queue.answer()
            first = first_number(1, next(self.numbers))
            picked = self.queue.pick(first, 0, is_careful=careful)
            if picked is None:
                return
            yield pa.ipc.read_record_batch(pa.py_buffer(picked[1]), schema)


KINDS = '"a"', '"aa"', '"order"', "7", "0.5", "0.25", "null", "true", '"caf\\u00e9"', "[1]"
ODD = b"\xffaa", b"aaa", b"", b"{}", None


def some_records(chance: random.Random, bad: float) -> list[ConnectRecord]:
    def value() -> bytes | None:
        if chance.random() < bad:
            return b'{"kind":"bad"}'
        if chance.random() < 0.1:
            return chance.choice(ODD)
        return b'{"kind":%s,"x":"%s"}' % (chance.choice(KINDS).encode(), b"a" * chance.randrange(3))

    size = chance.choice([1, 2, 5, 20, 100])
    return [
        ConnectRecord("t", 3, n, 0, chance.choice([None, b"k"]), value(), []) for n in range(size)
    ]


def assert_right(piece: Slice) -> None:
    found = piece.given
    topics, values = found.columns.get("topic", []), found.columns.get("value", [])
    given = dict(zip(found.rows, zip(topics, values, strict=True), strict=True))
    assert found.rows == sorted(found.rows)
    for number, row in enumerate(piece.rows):
        try:
            topic = topic_of(kind_of(row.value), row.key is not None, row.partition)
        except RaisedError:
            assert number in piece.bad
            assert number not in given
            continue
        assert number not in piece.bad
        expected = None if topic is None else (topic, masked(row.value))
        assert given.get(number) == expected


@pytest.mark.parametrize("seed", range(120))
def test_every_record_gets_its_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(parts, "MOST_ROWS", chance.choice([7, 1 << 20]))
    monkeypatch.setattr(answers, "_MOST", chance.choice([3, 8192]))
    monkeypatch.setattr(answers, "_ENOUGH", chance.choice([10, 1024]))
    monkeypatch.setattr(answers, "_PASS", chance.choice([1, 32]))
    bad, queue = chance.choice([0, 0, 0.02, 0.2]), SliceQueue(PREPARED)
    found = [
        Partition(queue, [some_records(chance, bad) for _ in range(chance.randrange(1, 12))])
        for _ in range(chance.randrange(1, 4))
    ]
    for each in found:
        queue.offer(each)
    spark = Spark(queue, chance, 0.1, chance.choice(["no", None]), chance.random() < 0.5)
    while any(each.is_waiting for each in found):
        assert spark.turn(), "records wait, and nobody does anything"
        if chance.random() < 0.005:
            gone = found.pop(chance.randrange(len(found)))
            queue.forget(gone)
    for each in found:
        for piece in each.done:
            assert_right(piece)


def events(count: int, *kinds: str) -> list[ConnectRecord]:
    some = itertools.islice(itertools.cycle(kinds), count)
    return [
        ConnectRecord("t", 3, n, 0, None, b'{"kind":%s}' % kind.encode(), [])
        for n, kind in enumerate(some)
    ]


def test_a_few_odd_documents_do_not_send_the_others_to_spark() -> None:
    """One in a slice is left to Spark, which tells nothing of the slices that follow."""
    queue, chance = SliceQueue(PREPARED), random.Random(1)
    slices = [[*events(999, '"a"', '"order"'), *events(1, "0.5")] for _ in range(100)]
    found = Partition(queue, slices)
    queue.offer(found)
    spark = Spark(queue, chance)
    while found.is_waiting:
        assert spark.turn()
    assert len(found.done) == 100
    assert spark.rows < 10_000


def test_only_some_slices_are_open_while_something_of_them_is_with_spark() -> None:
    queue = SliceQueue(PREPARED)
    first = Partition(queue, [events(10, '"a"')])
    queue.offer(first)
    assert Spark(queue, random.Random(1)).job()
    found = [
        Partition(queue, [events(10, '"a"', "0.5") for _ in range(8)], most=8) for _ in range(10)
    ]
    for each in found:
        queue.offer(each)
    while queue.may_answer:
        queue.answer()
    assert 8 < sum(len(each.open) for each in found) < 24
