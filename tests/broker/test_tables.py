"""The data source `sparkmirror` in a Spark session, beside a running mirror, and the join of docs/how-to/tables.md itself."""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from cluster_pair import ClusterPair
from flow_records import sparkmirror
from kafka_tools import (
    NewRecord,
    commit_group,
    consume,
    create_topic,
    delete_topic,
    end_offsets,
    produce,
    produce_transaction,
    topics,
    wait_for,
)
from running import Mirror
from spark_tables import answers_in

from sparkmirror.tables.flows import Flow, read_flows

pytestmark = pytest.mark.slow
PATIENCE = 400.0
Row = dict[str, Any]


@dataclass
class Mirrored:
    """A topic of two partitions with transactions in it, groups all over it, and a mirror of both."""

    clusters: ClusterPair
    directory: Path
    mirror: Mirror
    alias: str
    topic: str
    groups: dict[str, dict[int, int]]
    ends: dict[int, int]

    @property
    def file(self) -> Path:
        return self.directory / "mm2.properties"

    @property
    def flow(self) -> str:
        return f"{self.alias}->B"

    @property
    def remote(self) -> str:
        return f"{self.alias}.{self.topic}"

    def produce(self, count: int, partition: int) -> None:
        mark = uuid.uuid4().hex
        rows = [NewRecord(None, f"{mark}-{n}".encode(), partition) for n in range(count)]
        produce(self.clusters.source.bootstrap, self.topic, rows)

    def transaction(self, count: int, partition: int, *, commit: bool) -> None:
        mark = uuid.uuid4().hex
        rows = [NewRecord(None, f"{mark}-{n}".encode(), partition) for n in range(count)]
        produce_transaction(self.clusters.source.bootstrap, self.topic, rows, commit=commit)

    def translate(self) -> list[Row]:
        """What `sparkmirror offsets translate` says of all groups."""
        arguments = ("--group", ".*", "--pattern", "--json", "--source", self.alias)
        ran = sparkmirror("offsets", "translate", *arguments, str(self.file))
        found: list[Row] = json.loads(ran.stdout) if ran.returncode == 0 else []
        return found

    def is_translated(self) -> bool:
        """Whether each group has a checkpoint of what it has committed, and as far as it goes."""
        told = {
            (row["group"], row["partition"]): (row["upstream_offset"], row["downstream_offset"])
            for row in self.translate()
        }
        copied = end_offsets(self.clusters.target.bootstrap, self.remote)
        return all(
            told.get((group, partition), (-1, -1))[0] == offset
            and (offset < self.ends[partition] or told[group, partition][1] == copied[partition])
            for group, offsets in self.groups.items()
            for partition, offset in offsets.items()
        )


@pytest.fixture(scope="module")
def mirrored(
    cluster_pair: ClusterPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirrored]:
    mark = uuid.uuid4().hex[:6]
    alias, topic = f"A{mark}", f"orders-{mark}"
    source = cluster_pair.source.bootstrap
    keys = {
        "clusters": f"{alias}, B",
        f"{alias}.bootstrap.servers": source,
        "B.bootstrap.servers": cluster_pair.target.bootstrap,
        f"{alias}->B.enabled": "true",
        "topics": topic,
        "groups": f".*{mark}",
        "replication.factor": "1",
        "emit.heartbeats.enabled": "false",
        "heartbeats.replication.enabled": "false",
        "refresh.topics.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
    }
    directory = tmp_path_factory.mktemp("tables")
    mirror = Mirror(directory, keys)
    made = Mirrored(cluster_pair, directory, mirror, alias, topic, {}, {})
    create_topic(source, topic, 2)
    for partition in (0, 1):
        made.produce(40, partition)
        made.transaction(15, partition, commit=True)
        made.transaction(10, partition, commit=False)
        made.produce(20 + 10 * partition, partition)
    made.ends = end_offsets(source, topic)
    for number in range(12):
        offsets = {p: end * number // 11 for p, end in made.ends.items()}
        made.groups[f"g{number}-{mark}"] = offsets
        commit_group(source, f"g{number}-{mark}", topic, offsets)
    with mirror:
        yield made


@pytest.fixture(scope="module")
def answers(mirrored: Mirrored) -> Any:
    """Of one Spark program."""
    target = mirrored.clusters.target.bootstrap
    wait_for("the remote topic is there", lambda: mirrored.remote in topics(target), PATIENCE)
    wait_for("all groups are translated", mirrored.is_translated, PATIENCE)
    ends = mirrored.ends
    file = str(mirrored.file)
    questions = {
        "offsets": [
            *([mirrored.topic, p, offset] for p, end in ends.items() for offset in range(end + 5)),
            ["unknown", 0, 7],
        ],
        "wrong": [
            {"table": "lag"},
            {"file": file},
            {"file": file, "table": "lags"},
            {"file": file, "table": "lag", "flows": "A->B"},
            {"file": file, "table": "lag", "flow": "B->A"},
            {"file": file + ".not", "table": "lag"},
            {"file": file, "table": "lag", "worker": file},
        ],
    }
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return answers_in(mirrored.directory, questions, environment)


# -- tables ---------------------------------------------------------------------------------------


def test_lag_of_a_running_flow(answers: Any, mirrored: Mirrored) -> None:
    found = answers["lag"]["rows"]
    assert [(row["flow"], row["topic"], row["partition"]) for row in found] == [
        (mirrored.flow, mirrored.topic, 0),
        (mirrored.flow, mirrored.topic, 1),
    ]
    for row in found:
        assert row["remote_topic"] == mirrored.remote
        assert row["next_offset"] == row["source_end_offset"] == mirrored.ends[row["partition"]]
        assert (row["lag"], row["state"], row["reason"]) == (0, "RUNNING", None)
        assert row["record_age_ms"] >= 0
        assert 0 <= time.time() - row["reported_at"] < 600
    assert answers["behind"]["rows"] == []


def test_positions(answers: Any, mirrored: Mirrored) -> None:
    ends = end_offsets(mirrored.clusters.target.bootstrap, mirrored.remote)
    found = answers["positions"]["rows"]
    assert [(row["partition"], row["remote_partition"]) for row in found] == [(0, 0), (1, 1)]
    for row in found:
        partition = row["partition"]
        assert (row["topic"], row["remote_topic"]) == (mirrored.topic, mirrored.remote)
        assert row["connector"] == "MirrorSourceConnector"
        assert row["next_offset"] == mirrored.ends[partition]
        assert row["target_offset"] == row["sequence"] == ends[partition]
        assert row["producer_id"] >= 0
        assert row["producer_epoch"] >= 0
        assert len(bytes.fromhex(row["source_topic_id"])) == 16
        assert row["source_topic_id"] != row["target_topic_id"]


def test_groups_are_what_offsets_translate_shows(answers: Any, mirrored: Mirrored) -> None:
    shown = {
        (row["group"], row["topic"], row["partition"]): (
            row["upstream_offset"],
            row["downstream_offset"],
            row["metadata"],
        )
        for row in mirrored.translate()
    }
    found = answers["groups"]["rows"]
    assert len(shown) == len(found) == 24
    assert {row["topic"] for row in found} == {mirrored.topic}
    assert {
        (row["group"], row["remote_topic"], row["partition"]): (
            row["upstream_offset"],
            row["downstream_offset"],
            row["metadata"],
        )
        for row in found
    } == shown
    assert [row["group"] for row in answers["sql"]["rows"]] == sorted(mirrored.groups)


def test_columns_are_as_declared(answers: Any) -> None:
    for table in ("lag", "positions", "offset_map", "groups"):
        declared = import_module(f"sparkmirror.tables.{table}").COLUMNS
        assert answers[table]["columns"] == [list(column) for column in declared]


# -- the join -------------------------------------------------------------------------------------


def joined(answers: Any) -> dict[tuple[str, int, int], Row]:
    return {(r["topic"], r["partition"], r["offset"]): r for r in answers["translated"]["rows"]}


def test_the_join_is_what_offsets_translate_shows(answers: Any, mirrored: Mirrored) -> None:
    found = joined(answers)
    shown = mirrored.translate()
    assert len(shown) == 24
    for row in shown:
        one = found[mirrored.topic, row["partition"], row["upstream_offset"]]
        assert (one["remote_topic"], one["remote_partition"]) == (row["topic"], row["partition"])
        assert (one["target_offset"], one["exact"]) == (row["downstream_offset"], True)


def test_the_join_leads_every_offset_to_the_next_record(answers: Any, mirrored: Mirrored) -> None:
    """Held against both logs, record by record."""
    found = joined(answers)
    ends = end_offsets(mirrored.clusters.target.bootstrap, mirrored.remote)
    source = consume(mirrored.clusters.source.bootstrap, mirrored.topic)
    target = {
        row.value: row.offset
        for row in consume(mirrored.clusters.target.bootstrap, mirrored.remote)
    }
    for partition, end in mirrored.ends.items():
        there = [row for row in source if row.partition == partition]
        assert len(there) < end - 10, "aborted records and markers have no copies"
        for offset in range(end + 5):
            later = [target[row.value] for row in there if row.offset >= offset]
            row = found[mirrored.topic, partition, offset]
            assert row["target_offset"] == (later[0] if later else ends[partition])
            assert row["exact"] is (offset <= end)
    unknown = found["unknown", 0, 7]
    assert (unknown["target_offset"], unknown["exact"]) == (None, None)
    assert len(found) == len(answers["translated"]["rows"]), "no offset is there twice"


# -- what is wrong --------------------------------------------------------------------------------


def test_wrong_options(answers: Any, mirrored: Mirrored) -> None:
    for error, sentence in zip(
        answers["errors"],
        [
            "Option file is missing.",
            "Option table is missing. Set option table to one of lag, positions, offset_map, groups.",
            "There is no table lags.",
            "The data source sparkmirror has no option flows. Use file, table, flow, worker.",
            f"There is no flow B->A in {mirrored.file}, only {mirrored.flow}.",
            f"The file {mirrored.file}.not does not exist.",
            f"{mirrored.file} is an mm2.properties, which has the settings of its workers itself.",
        ],
        strict=True,
    ):
        assert f"sparkmirror.errors.ConfigError: {sentence}" in error


# -- without Spark: what changes ------------------------------------------------------------------


def flow_of(mirrored: Mirrored) -> Flow:
    (flow,) = read_flows(mirrored.file, None, None)
    return flow


def table(name: str, flow: Flow) -> list[Row]:
    module = import_module(f"sparkmirror.tables.{name}")
    names = [column for column, _ in module.COLUMNS]
    return [dict(zip(names, row, strict=True)) for row in module.rows(flow)]


def test_what_a_stopped_flow_leaves(answers: Any, mirrored: Mirrored) -> None:
    """The last test of the file: it stops the mirror, and then deletes the topics."""
    assert mirrored.mirror.stop() == 0
    flow = flow_of(mirrored)
    mirrored.produce(7, 0)
    assert [row["lag"] for row in table("lag", flow)] == [7, 0]

    delete_topic(mirrored.clusters.target.bootstrap, mirrored.remote)
    assert table("offset_map", flow) == [], "offsets of a topic that is gone mean nothing"
    create_topic(mirrored.clusters.target.bootstrap, mirrored.remote, 2)
    assert table("offset_map", flow) == [], "nor in another one of its name"
    assert len(table("groups", flow)) == 24

    delete_topic(mirrored.clusters.source.bootstrap, mirrored.topic)
    gone = table("lag", flow)
    assert [(row["source_end_offset"], row["lag"]) for row in gone] == [(None, None)] * 2
    create_topic(mirrored.clusters.source.bootstrap, mirrored.topic, 2)
    other = table("lag", flow)
    assert [(row["source_end_offset"], row["lag"]) for row in other] == [(None, None)] * 2
    assert all(row["next_offset"] for row in other)


def test_a_flow_that_never_ran_has_no_rows(mirrored: Mirrored, tmp_path: Path) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text(mirrored.file.read_text().replace(mirrored.alias, f"never{mirrored.alias}"))
    (flow,) = read_flows(file, None, None)
    before = topics(mirrored.clusters.target.bootstrap)
    for name in ("lag", "positions", "offset_map", "groups"):
        assert table(name, flow) == []
    assert topics(mirrored.clusters.target.bootstrap) == before, "reading creates nothing"
