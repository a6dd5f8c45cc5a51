"""Records of the status topic: their bytes, as Java's workers write them, and what is no record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.formats import status_log
from sparkmirror.formats.status_log import (
    ConnectorStatusRecord,
    StatusFields,
    StatusRecord,
    TaskStatusRecord,
    TopicStatusRecord,
    TopicUse,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TOPICS = st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True)
NUMBERS = st.integers(0, 2**31 - 1)
STATUSES = st.builds(
    StatusFields,
    st.sampled_from(status_log.STATES),
    TEXTS,
    NUMBERS,
    TEXTS | st.none(),
    TEXTS | st.none(),
    NUMBERS,
    TEXTS,
)
RECORDS: st.SearchStrategy[StatusRecord] = st.one_of(
    st.builds(ConnectorStatusRecord, TEXTS, STATUSES | st.none()),
    st.builds(TaskStatusRecord, TEXTS, NUMBERS, STATUSES | st.none()),
    st.builds(
        TopicStatusRecord,
        TEXTS.filter(bool),
        TOPICS,
        st.builds(TopicUse, NUMBERS, st.integers(0, 2**63 - 1)) | st.none(),
    ),
)
RUNNING = StatusFields("RUNNING", "127.0.0.1:38083", 4, None, "4.3.1")


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: StatusRecord) -> None:
    assert status_log.decode(*status_log.encode(record)) == record


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            ConnectorStatusRecord("c", StatusFields("RUNNING", "w:1", 2, note="by time")),
            b"status-connector-c",
            b'{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":2,"version":null,"note":"by time"}',
        ),
        (
            ConnectorStatusRecord("src", RUNNING),
            b"status-connector-src",
            b'{"state":"RUNNING","trace":null,"worker_id":"127.0.0.1:38083","generation":4,"version":"4.3.1"}',
        ),
        (
            TaskStatusRecord("a-b", 1, StatusFields("FAILED", "w:1", 2, "Error\n\tat x")),
            b"status-task-a-b-1",
            b'{"state":"FAILED","trace":"Error\\n\\tat x","worker_id":"w:1","generation":2,"version":null}',
        ),
        (
            TaskStatusRecord("src", 0, StatusFields("RUNNING", "w:1", 2, restarts=3)),
            b"status-task-src-0",
            b'{"state":"RUNNING","trace":null,"worker_id":"w:1","generation":2,"version":null,"restarts":3}',
        ),
        (TaskStatusRecord("src", 0, None), b"status-task-src-0", None),
        (
            TopicStatusRecord("src", "A.orders", TopicUse(0, 1700000000000)),
            b"status-topic-A.orders:connector-src",
            b'{"topic":{"name":"A.orders","connector":"src","task":0,"discoverTimestamp":1700000000000}}',
        ),
        (
            TopicStatusRecord("a:connector-b", "t", None),
            b"status-topic-t:connector-a:connector-b",
            None,
        ),
    ],
)
def test_bytes_are_those_of_java(record: StatusRecord, key: bytes, value: bytes | None) -> None:
    assert status_log.encode(record) == (key, value)
    assert status_log.decode(key, value) == record


def test_a_status_of_a_worker_before_4_1_has_no_version() -> None:
    value = b'{"state":"RUNNING","trace":null,"worker_id":"w","generation":1}'
    expected = StatusFields("RUNNING", "w", 1)
    assert status_log.decode(b"status-connector-c", value) == ConnectorStatusRecord("c", expected)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, None, "no known kind"),
        (b"status-other", None, "no known kind"),
        (b"status-task-x", None, "number of a task"),
        (b"status-task-x-1a", None, "number of a task"),
        (b"status-topic-t", None, "topic and a connector"),
        (b"status-topic-:connector-c", None, "topic and a connector"),
        (b"status-topic-t:connector-", None, "topic and a connector"),
        (b"status-topic-t:connector-c", b'{"topic":1}', "'topic'"),
        (b"status-topic-t:connector-c", b'{"topic":{"task":"0"}}', "'task'"),
        (b"status-connector-c", b"no", "not JSON"),
        (b"status-connector-c", b"1", "not an object"),
        (b"status-connector-c", b'{"state":"DANCING"}', "no state"),
        (b"status-connector-c", b'{"state":["RUNNING"]}', "no state"),
        (b"status-connector-c", b'{"state":"RUNNING","worker_id":1}', "'worker_id'"),
        (b"status-connector-c", b'{"state":"RUNNING","worker_id":"w"}', "'generation'"),
    ],
)
def test_what_cannot_be_read_says_why(key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        status_log.decode(key, value)
