"""Offset syncs, checkpoints and heartbeats as bytes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import SparkMirrorError
from sparkmirror.formats.mirror import (
    Checkpoint,
    Heartbeat,
    MalformedRecord,
    OffsetSync,
    decode_checkpoint,
    decode_heartbeat,
    decode_offset_sync,
    encode_checkpoint,
    encode_heartbeat,
    encode_offset_sync,
)


def test_an_offset_sync_as_kafka_writes_it() -> None:
    key, value = encode_offset_sync(OffsetSync("orders", 1, 101, 101))
    assert key.hex() == "00066f726465727300000001"
    assert value.hex() == "00000000000000650000000000000065"


def test_a_checkpoint_as_kafka_writes_it() -> None:
    key, value = encode_checkpoint(Checkpoint("g1", "A.orders", 1, 126, 102))
    assert key.hex() == "000267310008412e6f726465727300000001"
    assert value.hex() == "0000000000000000007e00000000000000660000"


def test_a_heartbeat_as_kafka_writes_it() -> None:
    key, value = encode_heartbeat(Heartbeat("A", "B", 0x1A1E11E2C9C))
    assert key.hex() == "000141000142"
    assert value.hex() == "0000000001a1e11e2c9c"


_NAME = st.text(max_size=40)
_INT32 = st.integers(-(2**31), 2**31 - 1)
_INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.builds(OffsetSync, _NAME, _INT32, _INT64, _INT64))
def test_offset_syncs_come_back(sync: OffsetSync) -> None:
    assert decode_offset_sync(*encode_offset_sync(sync)) == sync


@given(st.builds(Checkpoint, _NAME, _NAME, _INT32, _INT64, _INT64, _NAME))
def test_checkpoints_come_back(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(*encode_checkpoint(checkpoint)) == checkpoint


@given(st.builds(Heartbeat, _NAME, _NAME, _INT64))
def test_heartbeats_come_back(heartbeat: Heartbeat) -> None:
    assert decode_heartbeat(*encode_heartbeat(heartbeat)) == heartbeat


_RECORDS: list[tuple[Callable[[bytes | None, bytes | None], object], tuple[bytes, bytes]]] = [
    (decode_offset_sync, encode_offset_sync(OffsetSync("orders", 1, 101, 101))),
    (decode_checkpoint, encode_checkpoint(Checkpoint("g1", "A.orders", 1, 126, 102, "meta"))),
    (decode_heartbeat, encode_heartbeat(Heartbeat("A", "B", 1))),
]


@pytest.mark.parametrize(("decode", "record"), _RECORDS)
def test_a_record_that_is_cut_anywhere_is_refused(
    decode: Callable[[bytes | None, bytes | None], object], record: tuple[bytes, bytes]
) -> None:
    key, value = record
    for length in range(len(key)):
        with pytest.raises(MalformedRecord, match="ends in the middle"):
            decode(key[:length], value)
    for length in range(len(value)):
        with pytest.raises(MalformedRecord, match="ends in the middle"):
            decode(key, value[:length])


@pytest.mark.parametrize(("decode", "record"), _RECORDS)
def test_nulls_are_refused_and_bytes_behind_the_fields_are_not(
    decode: Callable[[bytes | None, bytes | None], object], record: tuple[bytes, bytes]
) -> None:
    key, value = record
    with pytest.raises(MalformedRecord, match="is null"):
        decode(None, value)
    with pytest.raises(MalformedRecord, match="is null"):
        decode(key, None)
    assert decode(key + b"x", value + b"y") == decode(key, value)


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_random_bytes_decode_or_fail_cleanly(key: bytes, value: bytes) -> None:
    for decode, _ in _RECORDS:
        try:
            decode(key, value)
        except MalformedRecord as error:
            assert isinstance(error, SparkMirrorError)


def test_strings_that_are_no_strings_are_refused() -> None:
    with pytest.raises(MalformedRecord, match="not UTF-8"):
        decode_heartbeat(b"\x00\x01\xff\x00\x00", b"\x00" * 10)
    with pytest.raises(MalformedRecord, match="ends in the middle"):
        decode_heartbeat(b"\xff\xff", b"\x00" * 10)


def test_an_unknown_version_is_read_as_the_first() -> None:
    key, value = encode_heartbeat(Heartbeat("A", "B", 7))
    assert decode_heartbeat(key, b"\x00\x09" + value[2:]) == Heartbeat("A", "B", 7)


def test_a_string_too_long_for_its_length_field_is_refused() -> None:
    assert encode_heartbeat(Heartbeat("a" * 32767, "B", 1))
    with pytest.raises(MalformedRecord, match="32768 bytes long"):
        encode_heartbeat(Heartbeat("a" * 32768, "B", 1))
