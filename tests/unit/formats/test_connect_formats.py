"""Keys of Connect's offsets topic, byte for byte, and where they go."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2 as kafka_python_murmur2

from sparkmirror.formats.connect import (
    SourceOffsetKey,
    checkpoint_offset_key,
    default_partition,
    heartbeat_offset_key,
    murmur2,
    parse_source_offset_key,
    source_offset_key,
)


def test_keys_are_the_bytes_of_a_java_worker() -> None:
    assert source_offset_key("src", "A", "orders", 0) == (
        b'["src",{"cluster":"A","partition":0,"topic":"orders"}]'
    )
    assert checkpoint_offset_key("cp", "g1", "A.orders", 1) == (
        b'["cp",{"partition":1,"topic":"A.orders","group":"g1"}]'
    )
    assert heartbeat_offset_key("hb", "A", "B") == (
        b'["hb",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]'
    )


def test_non_ascii_stays_raw_and_controls_are_escaped_in_upper_case() -> None:
    key = source_offset_key('n"\\', "é\u007f", "\u0001\n\u001b", 3)
    assert key == (
        b'["n\\"\\\\",{"cluster":"\xc3\xa9\x7f","partition":3,"topic":"\\u0001\\n\\u001B"}]'
    )


_NAME = st.text(max_size=20)
_PARTITION = st.integers(0, 2**31 - 1)


@given(_NAME, _NAME, _NAME, _PARTITION)
def test_keys_come_back(connector: str, cluster: str, topic: str, partition: int) -> None:
    key = source_offset_key(connector, cluster, topic, partition)
    assert parse_source_offset_key(key) == SourceOffsetKey(connector, cluster, topic, partition)
    assert json.loads(key) == [
        connector,
        {"cluster": cluster, "partition": partition, "topic": topic},
    ]


def test_a_key_in_another_order_is_understood() -> None:
    key = b'["c", {"topic": "t", "cluster": "A", "partition": 2, "more": 1}]'
    assert parse_source_offset_key(key) == SourceOffsetKey("c", "A", "t", 2)


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"\xff",
        b"{}",
        b'["c"]',
        b'["c",null]',
        b'["c",{"cluster":"A","topic":"t"}]',
        b'["c",{"cluster":"A","topic":"t","partition":"0"}]',
        b'["c",{"cluster":"A","topic":"t","partition":true}]',
        b'[1,{"cluster":"A","topic":"t","partition":0}]',
        checkpoint_offset_key("cp", "g", "t", 0),
        heartbeat_offset_key("hb", "A", "B"),
    ],
)
def test_other_keys_are_nobodys(key: bytes) -> None:
    assert parse_source_offset_key(key) is None


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        # The vectors of Kafka's own test of its hash.
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_of_known_keys(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected


@given(st.binary(max_size=70), st.integers(1, 200))
def test_partitions_are_those_of_another_client(key: bytes, partitions: int) -> None:
    oracle = int(kafka_python_murmur2(key))
    assert murmur2(key) & 0xFFFFFFFF == oracle & 0xFFFFFFFF
    assert default_partition(key, partitions) == (oracle & 0x7FFFFFFF) % partitions
