"""Records of the config topic: their bytes, as Java's workers write them, and what is no record."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.formats import config_log
from sparkmirror.formats.config_log import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    LoggerRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCountRecord,
    TaskRecord,
)

NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COUNTS = st.integers(0, 2**31 - 1)
PROPERTIES = st.dictionaries(NAMES, NAMES, max_size=5)
RECORDS: st.SearchStrategy[ConfigRecord] = st.one_of(
    st.builds(ConnectorRecord, NAMES, PROPERTIES | st.none()),
    st.builds(TaskRecord, NAMES, COUNTS, PROPERTIES),
    st.builds(CommitRecord, NAMES, COUNTS),
    st.builds(TargetStateRecord, NAMES, st.sampled_from(config_log.TARGET_STATES) | st.none()),
    st.builds(RestartRecord, NAMES, st.booleans(), st.booleans()),
    st.builds(SessionKeyRecord, st.binary(), NAMES, st.integers(0, 2**63 - 1)),
    st.builds(TaskCountRecord, NAMES, COUNTS),
    st.builds(LoggerRecord, NAMES, NAMES),
)


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: ConfigRecord) -> None:
    assert config_log.decode(*config_log.encode(record)) == record


@pytest.mark.parametrize(
    ("record", "key", "value"),
    [
        (
            ConnectorRecord("src", {"name": "src", "tasks.max": "2"}),
            b"connector-src",
            b'{"properties":{"name":"src","tasks.max":"2"}}',
        ),
        (ConnectorRecord("src", None), b"connector-src", None),
        (TaskRecord("a-b", 10, {"k": "v"}), b"task-a-b-10", b'{"properties":{"k":"v"}}'),
        (CommitRecord("src", 2), b"commit-src", b'{"tasks":2}'),
        (
            TargetStateRecord("src", "STOPPED"),
            b"target-state-src",
            b'{"state":"PAUSED","state.v2":"STOPPED"}',
        ),
        (
            TargetStateRecord("src", "STARTED"),
            b"target-state-src",
            b'{"state":"STARTED","state.v2":"STARTED"}',
        ),
        (TargetStateRecord("src", None), b"target-state-src", None),
        (
            RestartRecord("src", include_tasks=True, only_failed=False),
            b"restart-connector-src",
            b'{"include-tasks":true,"only-failed":false}',
        ),
        (
            SessionKeyRecord(b"\x00\xff secret", "HmacSHA256", 1700000000000),
            b"session-key",
            b'{"key":"AP8gc2VjcmV0","algorithm":"HmacSHA256","creation-timestamp":1700000000000}',
        ),
        (TaskCountRecord("src", 3), b"tasks-fencing-src", b'{"task-count":3}'),
        (LoggerRecord("org.apache", "WARN"), b"logger-cluster-org.apache", b'{"level":"WARN"}'),
    ],
)
def test_bytes_are_those_of_java(record: ConfigRecord, key: bytes, value: bytes | None) -> None:
    assert config_log.encode(record) == (key, value)
    assert config_log.decode(key, value) == record


@pytest.mark.parametrize(
    ("value", "state"),
    [
        (b'{"state":"PAUSED"}', "PAUSED"),  # a worker before 3.5
        (b'{"state":"PAUSED","state.v2":"STOPPED"}', "STOPPED"),
        (b'{"state":"PAUSED","state.v2":"LATER"}', "PAUSED"),  # a state of a later version
        (b'{"state":"PAUSED","state.v2":null}', "PAUSED"),
    ],
)
def test_the_newer_field_of_a_target_state_counts(value: bytes, state: str) -> None:
    assert config_log.decode(b"target-state-c", value) == TargetStateRecord("c", state)


def test_flags_that_a_restart_does_not_name_are_false() -> None:
    assert config_log.decode(b"restart-connector-c", b'{"only-failed":1}') == RestartRecord(
        "c", include_tasks=False, only_failed=False
    )


def test_values_that_are_no_texts_are_taken_as_their_text() -> None:
    value = b'{"properties":{"a":1,"b":true,"c":null,"d":"x"}}'
    assert config_log.decode(b"connector-c", value) == ConnectorRecord(
        "c", {"a": "1", "b": "true", "d": "x"}
    )


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (None, b"{}", "no known kind"),
        (b"", b"{}", "no known kind"),
        (b"other-x", b"{}", "no known kind"),
        (b"session-keys", b"{}", "no known kind"),
        (b"connector-c", b"{", "not JSON"),
        (b"connector-c", b"\xff", "not JSON"),
        (b"connector-c", b"[]", "not an object"),
        (b"connector-c", b"{}", "'properties'"),
        (b"connector-c", b'{"properties":[]}', "'properties'"),
        (b"task-c", b'{"properties":{}}', "number of a task"),
        (b"task-c-x", b'{"properties":{}}', "number of a task"),
        (b"task-c-0", None, "tombstone"),
        (b"commit-c", None, "tombstone"),
        (b"commit-c", b'{"tasks":"2"}', "'tasks'"),
        (b"commit-c", b'{"tasks":true}', "'tasks'"),
        (b"target-state-c", b'{"state":"GONE"}', "target state"),
        (b"target-state-c", b'{"state":[]}', "target state"),
        (b"session-key", None, "tombstone"),
        (b"session-key", b'{"key":"=","algorithm":"a","creation-timestamp":1}', "base64"),
        (b"session-key", b'{"key":"","algorithm":1,"creation-timestamp":1}', "'algorithm'"),
        (b"session-key", b'{"key":"","algorithm":"a"}', "'creation-timestamp'"),
        (b"tasks-fencing-c", b"{}", "'task-count'"),
        (b"logger-cluster-x", b'{"level":null}', "'level'"),
    ],
)
def test_what_cannot_be_read_says_why(key: bytes | None, value: bytes | None, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        config_log.decode(key, value)
