"""`sparkmirror preview` as users call it: what a query makes of real records is shown, and nothing is written."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from connect_worker import ConnectWorker, worker_properties
from kafka_tools import (
    NewRecord,
    consume,
    create_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from running import Mirror, properties
from worker_flow import Flow

from sparkmirror.tools.clusters import KafkaCluster, free_port

Unique = Callable[[str], str]
PATIENCE_S = 120.0
SQL = (
    "SELECT regexp_replace(CAST(value AS STRING), '[a-z0-9]+@', '***@') AS value, * EXCEPT (value) "
    "FROM records WHERE CAST(get_json_object(CAST(value AS STRING), '$.age') AS INT) >= 18"
)


def called(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparkmirror", "preview", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)


def documented(*arguments: str, code: int = 0) -> Any:
    done = called(*arguments, "--json")
    assert done.returncode == code, done.stdout + done.stderr
    return json.loads(done.stdout)


def written(directory: Path, keys: Mapping[str, str]) -> str:
    file = directory / "mm2.properties"
    file.write_text("".join(f"{name} = {value}\n" for name, value in keys.items()))
    return str(file)


def person(number: int, age: object) -> bytes:
    return json.dumps({"id": number, "age": age, "email": f"p{number}@example.com"}).encode()


@pytest.mark.slow
def test_what_a_query_makes_of_the_newest_records(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    topic = unique("people")
    create_topic(source_cluster.bootstrap, topic, 2)
    ages = {n: n for n in range(40)} | {37: "unknown"}
    rows = [NewRecord(b"k%d" % n, person(n, ages[n]), n % 2, 1000 + n) for n in range(40)]
    produce(source_cluster.bootstrap, topic, rows)
    keys = properties(source_cluster, target_cluster, flow_topics=topic, flow_transform_sql=SQL)
    before = topics(source_cluster.bootstrap), topics(target_cluster.bootstrap)
    found = documented(written(tmp_path, keys), "--limit", "30", "--explain", code=1)
    assert found["counts"] == {"read": 30, "kept": 21, "dropped": 8, "filtered": 0, "failed": 1}
    assert {c["name"]: c["type"] for c in found["columns"]}["value"] == "string"
    assert "Filter" in found["plan"]
    by_number = {json.loads(row["before"]["value"])["id"]: row for row in found["records"]}
    assert sorted(by_number) == list(range(10, 40))  # the newest, of both partitions
    assert by_number[37]["outcome"] == "failed"
    assert "CAST_INVALID_INPUT" in by_number[37]["error"]
    assert by_number[17]["outcome"] == "dropped"
    kept = by_number[18]
    assert kept["before"]["value"] == person(18, 18).decode()
    assert kept["after"] == {
        "topic": f"A.{topic}",
        "partition": 0,
        "offset": 9,
        "timestamp": 1018,
        "key": "k18",
        "value": person(18, 18).decode().replace("p18@", "***@"),
        "headers": [],
    }
    assert (topics(source_cluster.bootstrap), topics(target_cluster.bootstrap)) == before


@pytest.mark.slow
def test_it_says_what_the_copy_does(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    topic = unique("routed")
    create_topic(source_cluster.bootstrap, topic, 3)
    rows = [
        NewRecord(
            None if n % 7 == 0 else b"k%d" % n, b"\xff%d" % n, n % 3, 5000 + n, (("n", b"%d" % n),)
        )
        for n in range(60)
    ]
    rows += [NewRecord(b"k1", None, 1, 6000)]
    produce(source_cluster.bootstrap, topic, rows)
    other = f"{topic}-odd"
    sql = (
        "SELECT value, if(offset % 2 = 1, concat(topic, '-odd'), topic) AS topic, CAST(NULL AS INT) AS partition, "
        "array_append(headers, named_struct('key', 'from', 'value', CAST(topic AS BINARY))) AS headers "
        "FROM records WHERE key IS NOT NULL"
    )
    keys = properties(
        source_cluster,
        target_cluster,
        flow_topics=topic,
        flow_transform_sql=sql,
        emit_heartbeats_enabled="false",
    )
    keys |= {
        "A->B.transforms": "drop,mark",
        "A->B.predicates": "gone",
        "A->B.predicates.gone.type": "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        "A->B.transforms.drop.type": "org.apache.kafka.connect.transforms.Filter",
        "A->B.transforms.drop.predicate": "gone",
        "A->B.transforms.mark.type": "org.apache.kafka.connect.transforms.InsertHeader",
        "A->B.transforms.mark.header": "site",
        "A->B.transforms.mark.value.literal": "east",
    }
    file = written(tmp_path, keys)
    found = documented(file, "--limit", "100", "--from", "beginning")
    assert found["counts"]["filtered"] == 1
    assert found["counts"]["dropped"] == 9
    expected = sorted(
        (
            row["after"]["topic"],
            row["after"]["partition"],
            row["after"]["timestamp"],
            row["after"]["key"],
            base64.b64decode(row["after"]["value"]["base64"]),
            [(h["key"], h["value"]) for h in row["after"]["headers"]],
        )
        for row in found["records"]
        if row["after"] is not None
    )
    assert len(expected) == 51
    remotes = [f"A.{topic}", f"A.{other}"]
    assert {row[0] for row in expected} == {*remotes}

    def copied() -> bool:
        known = topics(target_cluster.bootstrap)
        ends = [end_offsets(target_cluster.bootstrap, name) for name in remotes if name in known]
        return sum(sum(each.values()) for each in ends) >= len(expected)

    with Mirror(tmp_path, keys) as mirror:
        wait_for("all is copied", copied, PATIENCE_S)
        assert mirror.stop() == 0
    got = sorted(
        (
            name,
            row.partition,
            row.timestamp,
            (row.key or b"").decode(),
            row.value,
            [(key, (value or b"").decode()) for key, value in row.headers],
        )
        for name in remotes
        for row in consume(target_cluster.bootstrap, name)
    )
    assert got == expected


@pytest.mark.slow
def test_for_people(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    first, second = unique("first"), unique("second")
    for name in (first, second):
        create_topic(source_cluster.bootstrap, name)
        produce(source_cluster.bootstrap, name, [NewRecord(b"k", b"v%d" % n) for n in range(5)])
    keys = properties(source_cluster, target_cluster, flow_topics=f"{first},{second}")
    file = written(tmp_path, keys)
    assert called(file).returncode == 2  # no query
    sql = "SELECT upper(CAST(value AS STRING)) AS value FROM records WHERE offset > 3"
    unclear = called(file, "--sql", sql)
    assert unclear.returncode == 2
    assert f"is for several topics: {first}, {second}" in unclear.stderr
    query = tmp_path / "query.sql"
    query.write_text(f"{sql};\n")
    done = called(file, "--sql-file", str(query), "--topic", second, "--limit", "3", "--explain")
    assert done.returncode == 0, done.stderr
    assert f"flow A->B, topic {second}" in done.stdout
    assert "The query gives value string." in done.stdout
    assert "== Physical Plan ==" in done.stdout
    assert "0@4" in done.stdout
    assert "V4" in done.stdout
    assert "0@1" not in done.stdout
    assert "3 record(s) read: 1 kept, 2 dropped, 0 failed." in done.stdout
    assert done.stderr == ""


@pytest.mark.slow
def test_refused_and_unreachable(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    topic = unique("empty")
    create_topic(source_cluster.bootstrap, topic)
    keys = properties(source_cluster, target_cluster, flow_topics=topic)
    file = written(tmp_path, keys)
    wrong = called(file, "--sql", "SELECT valeu AS value FROM records")
    assert wrong.returncode == 2
    assert "UNRESOLVED_COLUMN" in wrong.stderr
    assert "line 1 pos 7" in wrong.stderr
    said = documented(file, "--sql", "SELECT value FORM records", code=2)["error"]
    assert "(line 1, pos 18)" in said
    nothing = called(file, "--sql", "SELECT * FROM records")
    assert nothing.returncode == 0
    assert "has no records to try the query on" in nothing.stdout
    missing = called(file, "--sql", "SELECT * FROM records", "--topic", "nowhere")
    assert missing.returncode == 3
    assert "Topic nowhere is not on" in missing.stderr
    keys["A.bootstrap.servers"] = f"127.0.0.1:{free_port()}"
    away = called(written(tmp_path, keys), "--sql", "SELECT * FROM records", "--timeout", "2")
    assert away.returncode == 3
    assert "can be reached" in away.stderr


@pytest.mark.slow
def test_a_connector_of_a_worker(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    flow = Flow(source_cluster, target_cluster, unique("served"))
    flow.produce(10)
    keys = worker_properties(target_cluster.bootstrap, unique("group"))
    with ConnectWorker(tmp_path, keys) as worker:
        worker.wait_ready()
        sql = "SELECT reverse(CAST(value AS STRING)) AS value FROM records"
        worker.put(flow.name, flow.config(transform_sql=sql))
        found = documented(flow.name, "--url", worker.url, "--limit", "4")
        assert found["sql"] == sql
        assert found["counts"]["kept"] == 4
        assert {row["after"]["value"] for row in found["records"]} == {"9v", "8v", "7v", "6v"}
        unknown = called("no-such", "--url", worker.url)
        assert unknown.returncode == 2
        assert "has no connector no-such" in unknown.stderr
