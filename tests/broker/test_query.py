"""Flows with a query, as users run them: the target holds what the query says of the source."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from kafka_tools import NewRecord, consume, create_topic, end_offsets, produce, topics, wait_for
from running import Mirror, properties

from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
PATIENCE_S = 90.0


def people(count: int, partitions: int) -> list[NewRecord]:
    rows = []
    for n in range(count):
        value = {"id": n, "country": "de" if n % 3 else "fr", "email": f"p{n}@example.com"}
        rows.append(
            NewRecord(
                b"k%d" % (n % 50), json.dumps(value).encode(), n % partitions, 1_700_000_000_000 + n
            )
        )
    return rows


def test_a_filter_and_a_mask(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    topic, plain = unique("people"), unique("plain")
    for name in (topic, plain):
        create_topic(source_cluster.bootstrap, name, 2)
        produce(source_cluster.bootstrap, name, people(2000, 2))
    sql = (
        "SELECT regexp_replace(CAST(value AS STRING), '[a-z0-9]+@', '***@') AS value FROM records "
        "WHERE get_json_object(CAST(value AS STRING), '$.country') = 'de'"
    )
    keys = properties(
        source_cluster,
        target_cluster,
        flow_topics=f"{topic},{plain}",
        flow_transform_sql=sql,
        flow_transform_topics=topic,
        emit_heartbeats_enabled="false",
        sync_topic_configs_enabled="false",
    )
    # As the source has them: a producer that tries again may write in another order.
    source = consume(source_cluster.bootstrap, topic)
    assert sorted(row.value or b"" for row in source) == sorted(
        row.value or b"" for row in people(2000, 2)
    )
    wanted = [row for row in source if b'"de"' in (row.value or b"")]
    remote = f"A.{topic}"

    def copied(name: str) -> int:
        if name not in topics(target_cluster.bootstrap):
            return 0
        return sum(end_offsets(target_cluster.bootstrap, name).values())

    with Mirror(tmp_path, keys) as mirror:
        wait_for("the plain topic", lambda: copied(f"A.{plain}") >= 2000, PATIENCE_S)
        wait_for("the filtered topic", lambda: copied(remote) >= len(wanted), PATIENCE_S)
        assert mirror.stop() == 0
    for partition in (0, 1):
        rows = [
            row for row in consume(target_cluster.bootstrap, remote) if row.partition == partition
        ]
        expected = [row for row in wanted if row.partition == partition]
        assert [r.key for r in rows] == [r.key for r in expected]
        assert [r.timestamp for r in rows] == [r.timestamp for r in expected]
        assert all(b"***@example.com" in (r.value or b"") for r in rows)
        assert [json.loads(r.value or b"")["id"] for r in rows] == [
            json.loads(r.value or b"")["id"] for r in expected
        ]
