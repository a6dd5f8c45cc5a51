"""The query of a running connector is changed while records flow: each record passes through one of them, once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from connect_worker import ConnectWorker, worker_properties
from kafka_tools import create_topic, produce, wait_for
from queried import (
    Asked,
    Batch,
    Contents,
    Given,
    People,
    Source,
    arrived,
    arrived_count,
    assert_same,
    total,
    written,
)
from repeating import Repeating
from worker_flow import MIRROR

from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
PARTITIONS = 3
PATIENCE_S = 240.0
MARK = "query"
WHERE = "source"


def query(mark: str, *, topic: str = "topic", rows: str = "") -> str:
    """A query that writes into each record where it comes from, and which query it was."""
    return (
        "SELECT *, concat(headers, array("  # noqa: S608 - all of it is ours
        f"named_struct('key', '{MARK}', 'value', CAST('{mark}' AS BINARY)), "
        f"named_struct('key', '{WHERE}', 'value', CAST(concat(partition, '/', offset) AS BINARY)))) AS headers, "
        f"{topic} AS topic FROM records {rows}"
    )


QUERIES = {
    # Only the first leaves records out: of one that is missing it is clear then which query that was.
    "first": query("first", rows="WHERE offset % 3 > 0"),
    "second": query("second"),
    "third": query("third", topic="concat(topic, '.', partition % 2)"),
    "fourth": query("fourth"),
}


def passed(topic: str, got: Contents) -> Iterator[tuple[Source, str]]:
    """Every record on the target: what it is a copy of, and the query that it says it has passed."""
    for rows in got.values():
        for _, _, _, headers in rows:
            marks = [value for name, value in headers if name == MARK]
            places = [value for name, value in headers if name == WHERE]
            assert len(marks) == len(places) == 1
            assert marks[0] is not None
            assert places[0] is not None
            partition, offset = places[0].split(b"/")
            yield (topic, int(partition), int(offset)), marks[0].decode()


def switches(found: Mapping[Source, str]) -> dict[tuple[int, str], int]:
    """From which offset on each query holds in each partition; it must be one."""
    order = list(QUERIES)
    first: dict[tuple[int, str], int] = {}
    newest: dict[int, int] = {}
    for (_, partition, offset), mark in sorted(found.items()):
        place = order.index(mark)
        assert place >= newest.get(partition, 0), f"{partition}/{offset} went through {mark} again"
        newest[partition] = place
        first.setdefault((partition, mark), offset)
    return first


def check_told(since: Mapping[int, int], found: Mapping[Source, str]) -> None:
    """From there on all records have passed the last query, and none before."""
    last = list(QUERIES)[-1]
    for (_, partition, offset), mark in found.items():
        assert (mark == last) == (offset >= since[partition]), f"{partition}/{offset} {mark}"


def chosen(answers: Mapping[str, Given], first: Mapping[tuple[int, str], int]) -> Given:
    """What must come of every record, given from where on each query holds."""
    found: Given = {}
    for key in {key for given in answers.values() for key in given}:
        _, partition, offset = key
        holding = next(iter(QUERIES))
        for mark in QUERIES:
            if first.get((partition, mark), offset + 1) <= offset:
                holding = mark
        if key in answers[holding]:
            found[key] = answers[holding][key]
    return found


def told(worker: ConnectWorker, name: str) -> dict[int, int]:
    """From which offset on the query applies in each partition, as the status says."""
    status = worker.status(name)
    notes = " ".join(task.get("note", "") for task in status["tasks"])
    applies = " ".join(re.findall(r"The query applies from (.*?) on\.", notes))
    return {int(p): int(at) for p, at in re.findall(r"-(\d+) offset (\d+)", applies)}


@pytest.mark.slow
def test_each_record_passes_through_one_query_when_it_is_changed(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    source, target = source_cluster, target_cluster
    name, topic = unique("changing"), unique("t")
    people = People(topic, PARTITIONS)
    create_topic(source.bootstrap, topic, PARTITIONS)

    def write() -> None:
        produce(source.bootstrap, topic, people.rows(60), compression_type="lz4")

    def put(mark: str) -> None:
        worker.put(
            name,
            {
                "connector.class": f"{MIRROR}.MirrorSourceConnector",
                "source.cluster.alias": "A",
                "target.cluster.alias": "B",
                "source.cluster.bootstrap.servers": source.bootstrap,
                "target.cluster.bootstrap.servers": target.bootstrap,
                "topics": topic,
                "replication.factor": "-1",
                "heartbeats.replication.enabled": "false",
                "tasks.max": "2",
                "transform.sql": QUERIES[mark],
            },
        )

    def has(mark: str) -> bool:
        """Whether records of every partition have come through a query."""
        found = passed(topic, arrived(target, topic))
        return len({partition for (_, partition, _), each in found if each == mark}) == PARTITIONS

    worker = ConnectWorker(tmp_path, worker_properties(target.bootstrap, unique("change")))
    with worker:
        worker.wait_ready()
        with Repeating(write, 0.1):
            for mark in QUERIES:
                put(mark)
                wait_for(f"records pass through {mark}", lambda mark=mark: has(mark), PATIENCE_S)  # type: ignore[misc]
        produce(source.bootstrap, topic, people.last())
        asked = [Asked.of(source, topic, sql) for sql in QUERIES.values()]
        answers = dict(zip(QUERIES, Batch(asked, tmp_path).answers(), strict=True))
        ends = {
            (topic, row.partition, row.offset) for row in asked[0].rows if row.key == b"acme/last"
        }

        def is_done() -> bool:
            return ends <= {key for key, _ in passed(topic, arrived(target, topic))}

        wait_for("the last records are there", is_done, PATIENCE_S)
        wait_for("the status tells of all", lambda: len(told(worker, name)) == PARTITIONS)
        since = told(worker, name)
    got = arrived(target, topic)
    rows = list(passed(topic, got))
    found = dict(rows)
    assert len(found) == len(rows) == arrived_count(target, topic)
    first = switches(found)
    assert {mark for _, mark in first} == QUERIES.keys()
    check_told(since, found)
    wanted = written(asked[0], chosen(answers, first))
    assert total(wanted) == len(rows)
    assert_same(got, wanted)
