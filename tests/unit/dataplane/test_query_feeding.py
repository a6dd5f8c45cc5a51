"""What Spark is given of records beside their columns: fields of JSON, and texts that are none."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from sparkmirror.dataplane.query.columns import (
    NUMBER,
    Feed,
    Prepared,
    left,
    missing,
    place,
    unfit,
)
from sparkmirror.dataplane.query.feeding import Feeder, schema_of, weight
from sparkmirror.dataplane.query.frames import Kind, weighed, weight_of
from sparkmirror.transforms.record import ConnectRecord

NEEDS = frozenset({"topic", "key", "value"})


def rows(*contents: tuple[bytes | None, bytes | None]) -> list[ConnectRecord]:
    return [ConnectRecord("t", 0, n, 1, key, value, []) for n, (key, value) in enumerate(contents)]


def fed(
    feeder: Feeder, found: list[ConnectRecord], feed: Feed, *, is_careful: bool = False
) -> dict[str, list[Any]]:
    arrow = feeder.fed(found, is_careful=is_careful).arrow(7)
    batch = pa.ipc.read_record_batch(pa.py_buffer(arrow), schema_of(feed))
    batch.validate(full=True)
    given: dict[str, list[Any]] = batch.to_pydict()
    return given


def test_spark_is_given_the_fields_and_only_the_columns_it_needs_beside() -> None:
    feed = Feed(frozenset({"topic"}), {"key": ("$.k",), "value": ("$.a", "$.b")})
    feeder = Feeder(Prepared(1, NEEDS, frozenset(), feed))
    found = rows((b'{"k":1}', b'{"a":"x"}'), (None, b'{"b":0.5}'))
    assert fed(feeder, found, feed) == {
        NUMBER: [7, 8],
        "topic": ["t", "t"],
        left("key"): [None, None],
        place("key", "$.k"): ["1", None],
        left("value"): [None, b'{"b":0.5}'],
        place("value", "$.a"): ["x", None],
        place("value", "$.b"): [None, None],
    }
    assert feed.schema == (
        "`__record` bigint, `topic` string, `__key` binary, `__key$.k` string, "
        "`__value` binary, `__value$.a` string, `__value$.b` string"
    )
    assert Feed.read(json.loads(json.dumps(feed.plain))) == feed


def test_the_careful_plan_is_given_what_the_query_needs_as_it_is() -> None:
    feed = Feed(frozenset(), {"value": ("$.a",)}, frozenset({"key"}))
    feeder = Feeder(Prepared(1, NEEDS, frozenset(), feed))
    found = fed(feeder, rows((b"\xff", b'{"a":1}')), Feed(NEEDS), is_careful=True)
    assert found == {NUMBER: [7], "topic": ["t"], "key": [b"\xff"], "value": [b'{"a":1}']}


def test_what_one_column_cannot_read_another_may() -> None:
    feed = Feed(frozenset(), {"key": ("$.a",), "value": ("$.a",)})
    feeder = Feeder(Prepared(1, NEEDS, frozenset(), feed))
    for _ in range(3):
        found = fed(feeder, rows((b"no JSON", b'{"a":"x"}')), feed)
        assert found[place("value", "$.a")] == ["x"]
        assert found[left("key")] == [b"no JSON"]


def test_of_what_is_edited_behind_spark_it_is_given_what_is_no_text() -> None:
    feed = Feed(frozenset(), {}, frozenset({"value"}))
    feeder = Feeder(Prepared(1, NEEDS, frozenset(), feed))
    texts = rows((None, b"a"), (None, None), (None, b""), (None, "\xe9\U0001f600".encode()))
    assert fed(feeder, texts, feed) == {NUMBER: [7, 8, 9, 10], unfit("value"): [None] * 4}
    others = [b"\xff", b"caf\xc3", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]
    mixed = rows((None, b"a"), *((None, other) for other in others), (None, None))
    assert fed(feeder, mixed, feed)[unfit("value")] == [None, *others, None]
    assert feed.schema == "`__record` bigint, `__value~` binary"
    assert Feed.read(json.loads(json.dumps(feed.plain))) == feed


def test_of_some_columns_it_is_only_said_whether_they_are_there() -> None:
    feed = Feed(frozenset(), {"value": ("$.a",)}, nulls=frozenset({"key", "value"}))
    feeder = Feeder(Prepared(1, NEEDS, frozenset(), feed))
    assert fed(feeder, rows((None, b'{"a":"x"}'), (b"", None)), feed) == {
        NUMBER: [7, 8],
        left("value"): [None, None],
        place("value", "$.a"): ["x", None],
        missing("key"): [True, False],
        missing("value"): [False, True],
    }
    assert feed.schema == (
        "`__record` bigint, `__value` binary, `__value$.a` string, `__key?` boolean, `__value?` boolean"
    )
    assert Feed.read(json.loads(json.dumps(feed.plain))) == feed


def test_records_weigh_what_they_are_whatever_spark_is_given() -> None:
    found = rows((b"k" * 100, b"v" * 10_000), (None, None), (None, b"v" * 5000))
    assert 15_100 < weight(found) < 15_500
    feed = Feed(frozenset(), {"value": ("$.a",)})
    feeder = Feeder(Prepared(1, NEEDS, frozenset(), feed))
    documents = rows(*((None, b'{"a":1,"b":"%s"}' % (b"x" * 900)) for _ in range(100)))
    arrow = feeder.fed(documents).arrow(7)
    payload = memoryview(b"".join(weighed(Kind.SLICE, weight(documents), arrow)))[5:]
    weighs, batch = weight_of(payload)
    assert weighs > 90_000 > 10 * len(batch)
    assert bytes(batch) == bytes(arrow)
