"""Fetch: requests as kafka-python reads them, its answers as we read them, and the session's memory."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from sparkmirror.kafka.api_versions import FETCH
from sparkmirror.kafka.fetch import (
    FetchAnswer,
    Fetched,
    FetchLimits,
    FetchSession,
    TopicPartition,
    Wanted,
)

VERSIONS = tuple(range(FETCH.least, FETCH.most + 1))
SESSIONS = tuple(version for version in VERSIONS if version >= 7)
LIMITS = FetchLimits(
    max_wait_ms=123, min_bytes=2, max_bytes=1000, partition_max_bytes=77, isolation=1, rack="r1"
)
TOPICS = {name: uuid.uuid5(uuid.NAMESPACE_DNS, name) for name in ("a", "b", "c")}
_ANSWERED = FetchResponse.FetchableTopicResponse
_PARTITION = _ANSWERED.PartitionData


def wanted(topic: str, offset: int = 0, leader_epoch: int = 4, last_epoch: int = 3) -> Wanted:
    return Wanted(TOPICS[topic].bytes, offset, leader_epoch, last_epoch, 77)


def read_request(frame: bytes, version: int) -> Any:
    """The request as kafka-python reads it; all of its bytes must be used."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    stream = io.BytesIO(frame[4:])
    head = FetchRequest.parse_header(stream, version=version)
    assert (head.request_api_key, head.request_api_version) == (1, version)
    assert (head.correlation_id, head.client_id) == (9, "me")
    request = FetchRequest[version].decode(stream)
    assert stream.read() == b""
    return request


def asked(request: Any, version: int) -> dict[TopicPartition, tuple[int, ...]]:
    """What of which partition is asked for."""
    found: dict[TopicPartition, tuple[int, ...]] = {}
    for topic in request.topics:
        name = _name(topic, version)
        for part in topic.partitions:
            last = part.last_fetched_epoch if version >= 12 else -1
            epoch = part.current_leader_epoch if version >= 9 else -1
            found[name, part.partition] = (
                part.fetch_offset, epoch, last, part.partition_max_bytes,
                part.log_start_offset if version >= 5 else -1,
            )  # fmt: skip
    return found


def forgotten(request: Any, version: int) -> set[TopicPartition]:
    return {
        (_name(topic, version), part)
        for topic in request.forgotten_topics_data
        for part in topic.partitions
    }


def _name(topic: Any, version: int) -> str:
    if version < 13:
        return str(topic.topic)
    return {value: name for name, value in TOPICS.items()}[topic.topic_id]


def answer_of(
    version: int,
    rows: dict[TopicPartition, dict[str, Any]],
    *,
    session_id: int = 5,
    error: int = 0,
    throttle: int = 0,
) -> memoryview:
    """An answer as a broker sends it, from its correlation id on."""
    topics: dict[str, list[Any]] = {}
    for (topic, partition), fields in rows.items():
        row = {
            "error_code": 0, "high_watermark": 100, "last_stable_offset": 90,
            "log_start_offset": 10, "aborted_transactions": [], "preferred_read_replica": -1,
            "records": b"", **fields,
        }  # fmt: skip
        topics.setdefault(topic, []).append(_PARTITION(partition_index=partition, **row))
    response = FetchResponse(
        throttle_time_ms=throttle,
        error_code=error,
        session_id=session_id,
        responses=[
            _ANSWERED(topic=name, topic_id=TOPICS[name], partitions=found)
            for name, found in topics.items()
        ],
    )
    response.API_VERSION = version
    response.with_header(correlation_id=9)
    return memoryview(bytes(response.encode(header=True)))


def exchange(
    session: FetchSession,
    version: int,
    rows: dict[TopicPartition, dict[str, Any]] | None = None,
    **answer: Any,
) -> tuple[Any, FetchAnswer]:
    """One request and its answer."""
    request = read_request(session.request(9, "me"), version)
    return request, session.answer(answer_of(version, rows or {}, **answer))


@pytest.mark.parametrize("version", VERSIONS)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.integers(0, 200)),
        st.tuples(st.integers(0, 1 << 60), st.integers(-1, 1 << 30), st.integers(-1, 1 << 30)),
        max_size=8,
    )
)
def test_a_full_request_reads_back(
    version: int, parts: dict[TopicPartition, tuple[int, int, int]]
) -> None:
    session = FetchSession(LIMITS, version)
    for key, row in parts.items():
        session.want(key, wanted(key[0], *row))
    request = read_request(session.request(9, "me"), version)
    assert asked(request, version) == {
        key: (offset, epoch if version >= 9 else -1, last if version >= 12 else -1, 77, -1)
        for key, (offset, epoch, last) in parts.items()
    }
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (123, 2, 1000)
    assert request.isolation_level == 1
    if version >= 11:
        assert request.rack_id == "r1"
    if version >= 7:
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert not request.forgotten_topics_data
    assert request.replica_id == -1


@pytest.mark.parametrize("version", VERSIONS)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from("abc"), st.integers(0, 200)),
        st.fixed_dictionaries(
            {
                "error_code": st.sampled_from([0, 1, 3, 6, 74, 100]),
                "high_watermark": st.integers(-1, 1 << 60),
                "last_stable_offset": st.integers(-1, 1 << 60),
                "log_start_offset": st.integers(-1, 1 << 60),
                "preferred_read_replica": st.integers(-1, 9),
                "records": st.binary(max_size=40),
            }
        ),
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), max_size=3),
)
def test_an_answer_is_read(
    version: int,
    rows: dict[TopicPartition, dict[str, Any]],
    aborted: list[tuple[int, int]],
) -> None:
    session = FetchSession(LIMITS, version)
    for key in rows:
        session.want(key, wanted(key[0]))
    transactions = [
        _PARTITION.AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted
    ]
    _, answer = exchange(
        session,
        version,
        {key: {**row, "aborted_transactions": transactions} for key, row in rows.items()},
        throttle=31,
    )
    assert (answer.error, answer.throttle_ms) == (0, 31)
    assert answer.session_id == (5 if version >= 7 else 0)
    assert {(row.topic, row.partition): row for row in answer.partitions} == {
        key: Fetched(
            key[0], key[1], row["error_code"], row["high_watermark"], row["last_stable_offset"],
            row["log_start_offset"] if version >= 5 else -1, aborted,
            row["preferred_read_replica"] if version >= 11 else -1,
            memoryview(row["records"]), None,
        )
        for key, row in rows.items()
    }  # fmt: skip


def test_a_log_that_was_cut_back_is_told() -> None:
    session = FetchSession(LIMITS, 13)
    session.want(("a", 0), wanted("a"))
    epoch = _PARTITION.EpochEndOffset(epoch=2, end_offset=55)
    _, answer = exchange(session, 13, {("a", 0): {"diverging_epoch": epoch}})
    assert answer.partitions[0].diverging == (2, 55)


@pytest.mark.parametrize("version", SESSIONS)
def test_only_what_changed_is_sent_again(version: int) -> None:
    session = FetchSession(LIMITS, version)
    for partition in range(100):
        session.want(("a", partition), wanted("a"))
    first = session.request(9, "me")
    session.answer(answer_of(version, {("a", 7): {"records": b"x"}}))
    session.want(("a", 7), wanted("a", 1))
    session.forget(("a", 8))
    for partition in range(50, 60):
        session.want(("a", partition), wanted("a"))  # as known already
    second = session.request(9, "me")
    request = read_request(second, version)
    assert asked(request, version).keys() == {("a", 7)}
    assert forgotten(request, version) == {("a", 8)}
    assert (request.session_id, request.session_epoch) == (5, 1)
    session.answer(answer_of(version, {}))
    third = read_request(session.request(9, "me"), version)
    assert not third.topics
    assert not third.forgotten_topics_data
    assert third.session_epoch == 2
    assert len(second) < len(first) / 10


@pytest.mark.parametrize("version", SESSIONS)
def test_an_answer_to_an_offset_that_is_no_longer_wanted_is_not_given_out(version: int) -> None:
    """After a position was set back, records from beyond it would leave a hole."""
    session = FetchSession(LIMITS, version)
    for partition in range(4):
        session.want(("a", partition), wanted("a", 100))
    session.request(9, "me")
    session.want(("a", 0), wanted("a", 50))
    session.forget(("a", 1))
    session.want(("a", 1), wanted("a", 50))
    session.forget(("a", 2))
    rows = {("a", partition): {"records": b"x"} for partition in range(4)}
    answer = session.answer(answer_of(version, rows))
    assert [row.partition for row in answer.partitions] == [3]
    assert [row.partition for row in answer.outdated] == [0, 1, 2], "it counts for rate limits"
    request = read_request(session.request(9, "me"), version)
    assert {key: row[0] for key, row in asked(request, version).items()} == {
        ("a", 0): 50,
        ("a", 1): 50,
    }
    assert forgotten(request, version) == {("a", 2)}


@pytest.mark.parametrize("version", SESSIONS)
def test_another_limit_of_bytes_alone_does_not_outdate_what_is_on_the_way(version: int) -> None:
    session = FetchSession(LIMITS, version)
    session.want(("a", 0), wanted("a", 100))
    session.request(9, "me")
    session.want(("a", 0), wanted("a", 100)._replace(max_bytes=7))
    answer = session.answer(answer_of(version, {("a", 0): {"records": b"x"}}))
    assert [row.partition for row in answer.partitions] == [0]
    session.want(("a", 0), wanted("a", 101)._replace(max_bytes=7))
    request = read_request(session.request(9, "me"), version)
    assert {key: (row[0], row[3]) for key, row in asked(request, version).items()} == {
        ("a", 0): (101, 7)
    }


@pytest.mark.parametrize("version", SESSIONS)
@pytest.mark.parametrize("error", [70, 71, 106])
def test_after_a_session_error_everything_is_sent_in_a_new_session(
    version: int, error: int
) -> None:
    session = FetchSession(LIMITS, version)
    session.want(("a", 0), wanted("a"))
    session.want(("b", 1), wanted("b"))
    exchange(session, version)
    _, answer = exchange(session, version, error=error, session_id=0)
    assert answer.error == error
    request, _ = exchange(session, version, session_id=6)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request, version).keys() == {("a", 0), ("b", 1)}
    request, _ = exchange(session, version)
    assert (request.session_id, request.session_epoch) == (6, 1)
    assert not request.topics


@pytest.mark.parametrize("version", SESSIONS)
def test_a_broker_without_room_for_sessions_gets_full_requests(version: int) -> None:
    session = FetchSession(LIMITS, version)
    session.want(("a", 0), wanted("a"))
    for _ in range(3):
        request, answer = exchange(session, version, {("a", 0): {}}, session_id=0)
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert asked(request, version).keys() == {("a", 0)}
        assert len(answer.partitions) == 1


@pytest.mark.parametrize("version", SESSIONS)
def test_a_single_fetch_leaves_no_session_behind(version: int) -> None:
    session = FetchSession(LIMITS, version, kept=False)
    session.want(("a", 0), wanted("a"))
    for _ in range(2):
        request, _ = exchange(session, version, session_id=0)
        assert (request.session_id, request.session_epoch) == (0, -1)
        assert asked(request, version).keys() == {("a", 0)}


@pytest.mark.parametrize("version", SESSIONS)
def test_a_new_connection_begins_anew_and_a_late_answer_does_not_disturb_it(version: int) -> None:
    session = FetchSession(LIMITS, version)
    session.want(("a", 0), wanted("a"))
    exchange(session, version)
    session.request(9, "me")
    session.begin(version)
    late = session.answer(answer_of(version, {("a", 0): {"records": b"x"}}))
    assert late.partitions == []
    request, _ = exchange(session, version)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert asked(request, version).keys() == {("a", 0)}


def test_a_topic_created_again_is_not_read_under_its_old_id() -> None:
    session = FetchSession(LIMITS, 13)
    old, new = uuid.uuid4(), uuid.uuid4()
    for gone_before in (False, True):
        session.begin(13)
        session.want(("a", 0), Wanted(old.bytes, 5, 0, 0, 77))
        session.want(("b", 0), wanted("b"))
        exchange(session, 13)
        if gone_before:
            session.forget(("a", 0))
        session.want(("a", 0), Wanted(new.bytes, 0, 0, -1, 77))
        request = read_request(session.request(9, "me"), 13)
        assert (request.session_id, request.session_epoch) == (0, 0)
        assert {topic.topic_id for topic in request.topics} == {new, TOPICS["b"]}
        session.answer(answer_of(13, {}))


def test_session_epochs_start_over_at_one() -> None:
    session = FetchSession(LIMITS, 13)
    exchange(session, 13)
    session._epoch = 0x7FFFFFFF
    exchange(session, 13)
    request, _ = exchange(session, 13)
    assert request.session_epoch == 1


def test_topics_without_ids_are_named_whatever_the_broker_offers() -> None:
    """Brokers do not change how a session names its topics: it begins again."""
    session = FetchSession(LIMITS, 13)
    session.want(("a", 0), wanted("a"))
    exchange(session, 13)
    session.want(("n", 0), Wanted(bytes(16), 5, 4, 3, 77))
    request = read_request(session.request(9, "me"), 12)
    assert (request.session_id, request.session_epoch) == (0, 0)
    assert {topic.topic for topic in request.topics} == {"a", "n"}
    session.answer(answer_of(12, {("a", 0): {}}))
    session.forget(("n", 0))
    request = read_request(session.request(9, "me"), 13)
    assert {topic.topic_id for topic in request.topics} == {TOPICS["a"]}
    assert session.answer(answer_of(13, {("a", 0): {}})).partitions


@pytest.mark.parametrize("version", [version for version in VERSIONS if version < 7])
def test_before_sessions_every_request_names_all_partitions(version: int) -> None:
    session = FetchSession(LIMITS, version)
    session.want(("a", 0), wanted("a"))
    session.want(("b", 1), wanted("b"))
    for _ in range(2):
        request, _ = exchange(session, version)
        assert asked(request, version).keys() == {("a", 0), ("b", 1)}
    session.forget(("b", 1))
    request, _ = exchange(session, version)
    assert asked(request, version).keys() == {("a", 0)}


@given(st.data())
def test_after_every_answer_broker_and_session_agree(data: st.DataObject) -> None:
    """The broker's side is played by a dictionary that is changed only by what requests say."""
    session = FetchSession(LIMITS, 13)
    broker: dict[TopicPartition, int] = {}
    wishes: dict[TopicPartition, int] = {}
    keys = [(topic, partition) for topic in "abc" for partition in range(2)]
    for _ in range(data.draw(st.integers(1, 12))):
        for key in data.draw(st.lists(st.sampled_from(keys), max_size=4)):
            if data.draw(st.booleans()):
                wishes[key] = data.draw(st.integers(0, 3))
                session.want(key, wanted(key[0], wishes[key]))
            else:
                wishes.pop(key, None)
                session.forget(key)
        request = read_request(session.request(9, "me"), 13)
        if request.session_epoch == 0:
            broker = {}
        for key in forgotten(request, 13):
            broker.pop(key, None)
        broker |= {key: row[0] for key, row in asked(request, 13).items()}
        assert broker == wishes
        lost = data.draw(st.booleans())
        if lost:
            broker = {}
        session.answer(answer_of(13, {}, error=70 if lost else 0))
