"""Produce: requests as kafka-python reads them, its answers as we read them."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from sparkmirror.kafka import produce
from sparkmirror.kafka.api_versions import PRODUCE
from sparkmirror.kafka.produce import Outgoing, Produced, version_for

VERSIONS = tuple(range(PRODUCE.least, PRODUCE.most + 1))
TOPICS = {name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in ("a", "b", "c")}
NAMES = {value.bytes: name for name, value in TOPICS.items()}
_ANSWERED = ProduceResponse.TopicProduceResponse
_PARTITION = _ANSWERED.PartitionProduceResponse

partitions = st.tuples(st.sampled_from("abc"), st.integers(0, 500))


@pytest.mark.parametrize("version", VERSIONS)
@given(st.dictionaries(partitions, st.binary(min_size=1, max_size=300), min_size=1, max_size=8))
def test_a_request_reads_back(version: int, batches: dict[tuple[str, int], bytes]) -> None:
    rows = [
        Outgoing(topic, TOPICS[topic].bytes, partition, memoryview(bytearray(batch)))
        for (topic, partition), batch in batches.items()
    ]
    chunks = produce.request(version, 9, "me", 4321, rows)
    frame = b"".join(chunks)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    stream = io.BytesIO(frame[4:])
    head = ProduceRequest.parse_header(stream, version=version)
    assert (head.request_api_key, head.request_api_version) == (0, version)
    assert (head.correlation_id, head.client_id) == (9, "me")
    request = ProduceRequest[version].decode(stream)
    assert stream.read() == b""
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 4321)
    found = {
        (NAMES[topic.topic_id.bytes] if version >= 13 else topic.name, part.index): part.records
        for topic in request.topic_data
        for part in topic.partition_data
    }
    assert found == batches


@pytest.mark.parametrize("version", VERSIONS)
def test_batches_are_referenced_and_not_copied(version: int) -> None:
    batch = memoryview(bytearray(b"x" * 100))
    chunks = produce.request(version, 1, "me", 1, [Outgoing("a", TOPICS["a"].bytes, 0, batch)])
    assert any(chunk is batch for chunk in chunks)


@pytest.mark.parametrize("version", VERSIONS)
@given(
    st.dictionaries(
        partitions,
        st.tuples(
            st.sampled_from([0, 6, 10, 45, 87]),
            st.integers(-1, 1 << 60),
            st.integers(-1, 1 << 60),
            st.none() | st.text("xyz", min_size=1, max_size=10),
            st.none() | st.text("xyz", min_size=1, max_size=10),
        ),
        max_size=6,
    )
)
def test_an_answer_is_read(
    version: int,
    rows: dict[tuple[str, int], tuple[int, int, int, str | None, str | None]],
) -> None:
    topics: dict[str, list[Any]] = {}
    for (topic, partition), (code, base, start, text, detail) in rows.items():
        found = _PARTITION.BatchIndexAndErrorMessage(
            batch_index=0, batch_index_error_message=detail
        )
        topics.setdefault(topic, []).append(
            _PARTITION(
                index=partition, error_code=code, base_offset=base, log_append_time_ms=-1,
                log_start_offset=start, record_errors=[found] if detail else [],
                error_message=text,
                current_leader=_PARTITION.LeaderIdAndEpoch(leader_id=3, leader_epoch=7),
            )
        )  # fmt: skip
    response = ProduceResponse(
        responses=[
            _ANSWERED(name=name, topic_id=TOPICS[name], partition_responses=parts)
            for name, parts in topics.items()
        ],
        throttle_time_ms=17,
    )
    response.API_VERSION = version
    response.with_header(correlation_id=9)
    payload = memoryview(bytes(response.encode(header=True)))
    answer = produce.answer(version, payload, NAMES)
    assert answer.throttle_ms == 17
    assert {(row.topic, row.partition): row for row in answer.partitions} == {
        key: Produced(
            key[0], key[1], code, base, start if version >= 5 else -1,
            (" ".join(filter(None, (text, detail))) or None) if version >= 8 else None,
        )
        for key, (code, base, start, text, detail) in rows.items()
    }  # fmt: skip


@pytest.mark.parametrize(
    ("offered", "ids", "version"), [(13, "ab", 13), (13, "a", 12), (12, "a", 12), (7, "a", 7)]
)
def test_topics_without_ids_are_named_whatever_the_broker_offers(
    offered: int, ids: str, version: int
) -> None:
    rows = [
        Outgoing(name, TOPICS[name].bytes if name in ids else bytes(16), 0, memoryview(b"x"))
        for name in "ab"
    ]
    assert version_for(offered, rows) == version
