"""Progress records: what a task reports is what everybody reads."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import KafkaError
from sparkmirror.formats.progress import (
    PartitionProgress,
    Progress,
    RunsOn,
    decode,
    encode,
    encode_partition,
    encode_rows,
)

ROW = PartitionProgress("t", 3, "A.t", 10, 20, 5, 500, 7, 40)


def test_a_report_survives_its_bytes() -> None:
    routed = replace(ROW, target=-1, state="FAILED", error="no", loss="gone", routed="a b")
    asked = replace(routed, since=7, until=9)
    report = Progress("c", 1, 100, 200, (ROW, routed, asked))
    key, value = encode(report)
    assert key == b"c/1"
    assert decode(value) == report


def test_a_report_in_several_records_is_read_as_one() -> None:
    rows = [replace(ROW, partition=number) for number in range(5)]
    whole = Progress("Grüße", 1, 100, 200, tuple(rows))
    halves = [
        encode_rows("Grüße", 1, 100, 200, [encode_partition(row) for row in part])
        for part in (rows[:2], rows[2:])
    ]
    assert {key for key, _ in halves} == {encode(whole)[0]}
    assert [row for _, value in halves for row in decode(value).partitions] == rows


def test_only_a_row_with_a_query_tells_of_it() -> None:
    _, value = encode(Progress("c", 1, 100, 200, (ROW, replace(ROW, since=0))))
    plain, asked = json.loads(value)["partitions"]
    assert "since" not in plain
    assert "until" not in plain
    assert asked == {**plain, "since": 0}


def test_the_topics_that_were_written_to() -> None:
    assert ROW.written == ["A.t"]
    assert replace(ROW, records=0).written == []
    assert replace(ROW, routed="a b").written == ["a", "b"]


@pytest.mark.parametrize("value", [b"", b"{}", b'{"partitions":[{"x":1}]}', b"[1]"])
def test_what_is_no_report_is_told(value: bytes) -> None:
    with pytest.raises(KafkaError):
        decode(value)


def test_a_newer_task_may_tell_more() -> None:
    report = Progress("c", 1, 100, 200, (ROW,))
    _, value = encode(report)
    assert decode(value.replace(b'"topic":"t"', b'"topic":"t","hue":"red"')) == report


def test_a_report_tells_where_its_task_runs() -> None:
    report = Progress("c", 1, 100, 200, (ROW,), RunsOn("10.0.0.7", 3, 1))
    _, value = encode(report)
    assert decode(value) == report
    assert json.loads(value) | {"host": "10.0.0.7", "spark_task": 3, "attempt": 1} == json.loads(
        value
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"partitions": [1]},
        {"partitions": 1},
        {"partitions": None},
        {"partitions": [{"topic": ["t"]}]},
        {"time": "x"},
        {"since": None},
        {"task": True},
        {"connector": ["x"]},
        {"spark_task": "x"},
    ],
)
def test_what_is_no_report_is_a_kafka_error(changed: dict[str, Any]) -> None:
    """Whoever may write to the topic must not stop those who read it."""
    whole = {"connector": "x", "task": 0, "since": 0, "time": 0, "partitions": []}
    decode(json.dumps(whole).encode())
    with pytest.raises(KafkaError, match="cannot be read"):
        decode(json.dumps({**whole, **changed}).encode())


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda c: (
            st.lists(c)
            | st.dictionaries(
                st.sampled_from(
                    ["connector", "task", "since", "time", "partitions", "topic", "until"]
                ),
                c,
            )
        ),
    )
)
def test_nothing_else_comes_of_a_record(document: object) -> None:
    with contextlib.suppress(KafkaError):
        decode(json.dumps(document).encode())
