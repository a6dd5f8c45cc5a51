"""Kafka's primitive types, against kafka-python's."""

from __future__ import annotations

import io
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_header import RequestHeader
from kafka.protocol.schemas.fields.codecs import UnsignedVarInt32

from sparkmirror.kafka.primitives import (
    I16,
    I32,
    I64,
    Reader,
    compact_string,
    request_head,
    string,
    uvarint,
)


@given(st.integers(0, (1 << 31) - 1))
def test_unsigned_varints(value: int) -> None:
    encoded = uvarint(value)
    assert UnsignedVarInt32.decode(io.BytesIO(encoded)) == value
    reader = Reader(memoryview(encoded))
    assert reader.uvarint() == value
    assert reader.position == len(encoded)


def test_a_varint_without_end_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 5 bytes"):
        Reader(memoryview(b"\xff" * 1000)).uvarint()


@given(st.text(max_size=200))
def test_strings(value: str) -> None:
    assert Reader(memoryview(string(value))).text(flexible=False) == value
    assert Reader(memoryview(compact_string(value))).text(flexible=True) == value


@given(st.integers(-(1 << 15), (1 << 15) - 1), st.integers(-(1 << 31), (1 << 31) - 1),
       st.integers(-(1 << 63), (1 << 63) - 1))  # fmt: skip
def test_numbers_in_a_row(short: int, middle: int, long: int) -> None:
    reader = Reader(memoryview(I16.pack(short) + I32.pack(middle) + I64.pack(long) + b"\x07"))
    assert (reader.i16(), reader.i32(), reader.i64(), reader.i8()) == (short, middle, long, 7)


def test_null_counts_as_nothing() -> None:
    assert Reader(memoryview(I16.pack(-1))).text(flexible=False) is None
    assert Reader(memoryview(b"\0")).text(flexible=True) is None
    assert Reader(memoryview(I32.pack(-1))).array(flexible=False) == 0
    assert Reader(memoryview(b"\0")).array(flexible=True) == 0
    assert Reader(memoryview(I32.pack(-1))).blob(flexible=False).nbytes == 0
    assert Reader(memoryview(b"\0")).blob(flexible=True).nbytes == 0


@given(st.dictionaries(st.integers(0, 300), st.binary(max_size=20), max_size=4))
def test_tagged_fields_are_found_and_passed_over(tags: dict[int, bytes]) -> None:
    encoded = uvarint(len(tags))
    for tag, value in tags.items():
        encoded += uvarint(tag) + uvarint(len(value)) + value
    reader = Reader(memoryview(encoded + b"rest"))
    found = reader.tags()
    assert {tag: bytes(value) for tag, value in (found or {}).items()} == tags
    assert bytes(reader.take(4)) == b"rest"


def test_a_blob_is_a_view_of_the_answer() -> None:
    whole = memoryview(bytearray(I32.pack(3) + b"abcd"))
    blob = Reader(whole).blob(flexible=False)
    assert bytes(blob) == b"abc"
    assert blob.obj is whole.obj


@given(st.integers(0, 90), st.integers(0, 20), st.integers(0, (1 << 31) - 1),
       st.text(max_size=20), st.booleans())  # fmt: skip
def test_request_heads(
    api: int, version: int, correlation: int, client: str, flexible: bool
) -> None:
    encoded = request_head(api, version, correlation, client, flexible=flexible)
    stream = io.BytesIO(encoded)
    head = RequestHeader.decode(stream, flexible=flexible)
    assert (head.request_api_key, head.request_api_version) == (api, version)
    assert (head.correlation_id, head.client_id) == (correlation, client)
    assert stream.read() == b""


def test_uuids_are_sixteen_bytes() -> None:
    one = uuid.uuid4()
    assert Reader(memoryview(one.bytes)).uuid() == one.bytes
