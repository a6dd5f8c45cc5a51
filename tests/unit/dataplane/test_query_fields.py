"""Fields of JSON that are read before Spark: what is read of which documents, and which are left to Spark."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from sparkmirror.dataplane.query.columns import NUMBER, Feed, left, place
from sparkmirror.dataplane.query.fields import FieldReader
from sparkmirror.dataplane.query.steps import fed

UNSURE = object()


def field(document: bytes, path: str = "$.a") -> object:
    """What is read of one document."""
    (unread,), (row,) = FieldReader([path]).read([document])
    assert unread in (None, document)
    return row[0] if unread is None else UNSURE


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (b'{"a":"x"}', "x"),
        (b'{"b":[1,{"a":2}],"a":"x"} \n', "x"),
        (b'{"a":"caf\xc3\xa9 \\u00e9 \\n \\ud83d\\ude00"}', "caf\xe9 \xe9 \n \U0001f600"),
        (b'{"a":""}', ""),
        (b'{"a":-12}', "-12"),
        (b'{"a":-0}', "0"),
        (b'{"a":18446744073709551615}', "18446744073709551615"),
        (b'{"a":true}', "true"),
        (b'{"a":false}', "false"),
        (b'{"a":null}', None),
        (b'{"b":1}', None),
        (b"{}", None),
        (b'{"\\u0061":"x"}', "x"),
        (b'{"a":"first","a":"second"}', "first"),
    ],
)
def test_what_is_read(document: bytes, found: str | None) -> None:
    assert field(document) == found


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b'"a"',
        b'[{"a":1}]',
        b' {"a":1}',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":1}}',
        b"{'a':1}",
        b'{"a":1.5}',
        b'{"a":1e3}',
        b'{"a":18446744073709551616}',
        b'{"a":{"b":1}}',
        b'{"a":[1]}',
        b'{"a":"\xff"}',
        b'{"a":"\x01"}',
        b'{"a":"\\ud800"}',
        b'{"a":null,"a":"second"}',
        b'{"a":null,"\\u0061":"second"}',
        b'{"a":"x","n":' + b"1" * 1500 + b".5}",
        b'{"a":"x","n":' + b"[" * 1001 + b"]" * 1001 + b"}",
        b'{"a":"x","' + b"n" * 50_000 + b'":1}',
    ],
)
def test_what_is_left_to_spark(document: bytes) -> None:
    assert field(document) is UNSURE


def test_what_is_long_but_within_the_limits_is_read() -> None:
    numbers = {f"n{n}": 10**15 + n for n in range(1500)}
    document = json.dumps({"a": "x", "b": numbers}, separators=(",", ":")).encode()
    assert 30_000 < len(document) < 50_000
    assert field(document) == "x"


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (b'{"a":{"b":"x"}}', "x"),
        (b'{"a":{"c":1}}', None),
        (b'{"a":{"b":null}}', None),
        (b'{"c":{"b":"x"}}', None),
        (b'{"a":{"b":"x"},"a":{"b":"y"}}', "x"),
        # Spark tries the second.
        (b'{"a":{"c":1},"a":{"b":"x"}}', UNSURE),
        (b'{"a":{"b":null},"a":{"b":"x"}}', UNSURE),
        (b'{"a":{"b":null,"b":"x"}}', UNSURE),
        (b'{"a":"text"}', UNSURE),
        (b'{"a":[{"b":"x"}]}', UNSURE),
        (b'{"a":null,"a":{"b":"x"}}', UNSURE),
    ],
)
def test_fields_of_fields(document: bytes, found: object) -> None:
    assert field(document, "$.a.b") == found


def test_a_document_is_left_to_spark_whole() -> None:
    documents = [b'{"a":"x","b":1.5}', None, b'{"a":"y"}', b'{"a":"z","b":2}']
    unread, rows = FieldReader(["$.a", "$.b"]).read(documents)
    assert unread == [documents[0], None, None, None]
    assert rows[1:] == [[None, None], ["y", None], ["z", "2"]]
    assert rows[0] == [None, None]


def test_where_most_are_left_to_spark_the_others_are_not_looked_at_for_a_while() -> None:
    reader = FieldReader(["$.a"])
    text, number = b'{"a":"x"}', b'{"a":1.5}'
    assert reader.read([text, number])[0] == [None, number]
    assert reader.read([number, text, number])[0] == [number, None, number]
    batches = 0
    while reader.read([text])[0] == [text]:
        batches += 1
        assert batches < 100
    assert batches > 10
    assert reader.read([text]) == ([None], [["x"]])


def test_spark_is_given_the_fields_and_only_the_columns_it_needs_beside() -> None:
    feed = Feed(frozenset({"topic"}), {"key": ("$.k",), "value": ("$.a", "$.b")})
    batch = pa.RecordBatch.from_pydict(
        {
            NUMBER: pa.array([7, 8], pa.int64()),
            "topic": ["t", "t"],
            "key": pa.array([b'{"k":1}', None], pa.binary()),
            "value": pa.array([b'{"a":"x"}', b'{"b":0.5}'], pa.binary()),
        }
    )
    found = fed(batch, feed, 1)
    assert found.to_pydict() == {
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
    assert fed(batch, Feed(), 1) is batch


def test_what_one_column_cannot_read_another_may() -> None:
    feed = Feed(frozenset(), {"key": ("$.a",), "value": ("$.a",)})
    batch = pa.RecordBatch.from_pydict(
        {
            NUMBER: pa.array([7], pa.int64()),
            "key": pa.array([b"no JSON"], pa.binary()),
            "value": pa.array([b'{"a":"x"}'], pa.binary()),
        }
    )
    for _ in range(3):
        found = fed(batch, feed, 2)
        assert found.column(place("value", "$.a")).to_pylist() == ["x"]
        assert found.column(left("key")).to_pylist() == [b"no JSON"]
