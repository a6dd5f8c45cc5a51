"""Fields of JSON that are read before Spark: what is read of which documents, and which are left to Spark."""

from __future__ import annotations

import json

import pytest

from sparkmirror.dataplane.query.fields import FieldReader

UNSURE = object()


def field(document: bytes, path: str = "$.a") -> object:
    """What is read of one document."""
    unread, ((text,),) = FieldReader([path]).read([document])
    assert unread in (None, [document])
    return text if unread is None else UNSURE


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
    unread, columns = FieldReader(["$.a", "$.b"]).read(documents)
    assert unread == [documents[0], None, None, None]
    assert columns == [[None, None, "y", "z"], [None, None, None, "2"]]


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
    assert reader.read([text]) == (None, [["x"]])
