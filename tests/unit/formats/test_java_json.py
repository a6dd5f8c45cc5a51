"""JSON as Java writes it: which characters are escaped, and in which order fields come."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.formats import java_json

DOCUMENTS: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=20),
    max_leaves=30,
)


@given(DOCUMENTS)
def test_a_document_comes_back_as_it_was(document: Any) -> None:
    assert java_json.decode(java_json.encode(document)) == document


@given(DOCUMENTS)
def test_other_readers_see_the_same_document(document: Any) -> None:
    assert json.loads(java_json.encode(document)) == document


@given(DOCUMENTS)
def test_order_is_all_that_hash_ordering_changes(document: Any) -> None:
    ordered = java_json.hash_ordered(document)
    assert ordered == document
    assert java_json.encode(java_json.hash_ordered(ordered)) == java_json.encode(ordered)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ({"a": 1, "b": None, "c": True}, b'{"a":1,"b":null,"c":true}'),
        ([1, "x", []], b'[1,"x",[]]'),
        ('tab\t quote" back\\ nl\n', b'"tab\\t quote\\" back\\\\ nl\\n"'),
        ("\x1f\x0b\x7f", b'"\\u001F\\u000B\x7f"'),
        ("größe \U0001f600", '"größe \U0001f600"'.encode()),
        ("\ud800", b'"?"'),
    ],
)
def test_bytes_are_those_of_java(value: object, written: bytes) -> None:
    assert java_json.encode(value) == written


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("cluster", 872092154), ("polygenelubricants", 1 << 31)],
)
def test_the_hash_of_a_text_is_javas(text: str, expected: int) -> None:
    assert java_json.string_hash(text) == expected


@pytest.mark.parametrize(
    "order",
    [
        ["cluster", "partition", "topic"],
        ["partition", "topic", "group"],
        ["sourceClusterAlias", "targetClusterAlias"],
    ],
)
def test_mm2s_partitions_have_the_order_that_java_gives_them(order: list[str]) -> None:
    assert java_json.hash_order(reversed(order)) == order


def test_keys_that_share_a_bucket_keep_their_order_and_more_keys_have_more_buckets() -> None:
    assert java_json.hash_order(["q", "a"]) == ["q", "a"]  # 113 and 97: both in bucket 1 of 16
    assert java_json.hash_order(["a", "q"]) == ["a", "q"]
    many = ["q", "a", *"bcdefghijkl"]  # 13 keys, 32 buckets: 113 is in 17, 97 in 1
    assert java_json.hash_order(many) == [*"abcdefghijkl", "q"]


@pytest.mark.parametrize(
    "damaged", [b"", b"{", b"\xff", b"[" * 100_000, '{"a":1}'.encode("utf-16")]
)
def test_what_is_no_document_is_a_value_error(damaged: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        java_json.decode(damaged)


@pytest.mark.parametrize(
    ("number", "written"),
    [
        (0.0, "0.0"),
        (1.5, "1.5"),
        (-0.25, "-0.25"),
        (1e10, "1.0E10"),
        (1.25e7, "1.25E7"),
        (9999999.0, "9999999.0"),
        (0.001, "0.001"),
        (1e-4, "1.0E-4"),
        (-1.234e-15, "-1.234E-15"),
    ],
)
def test_numbers_with_a_point_are_printed_as_java_prints_them(number: float, written: str) -> None:
    assert java_json.encode([number]) == f"[{written}]".encode()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_with_a_point_keep_their_value(number: float) -> None:
    assert java_json.decode(java_json.encode(number)) == number
