"""The recipes of the docs between real brokers: the target holds what one batch query over the whole source gives."""

from __future__ import annotations

import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from connect_worker import ConnectWorker, worker_properties
from kafka_tools import Record, create_topic
from queried import (
    Asked,
    Batch,
    Content,
    Contents,
    People,
    Recipe,
    arrived,
    assert_same,
    await_count,
    blocks,
    head,
    recipes,
    total,
    write_all_sorts,
)
from running import Mirror, properties
from worker_flow import MIRROR

from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
Check = Callable[[str, Sequence[Record], Contents], None]
PARTITIONS = 3
PATIENCE_S = 240.0
QUICK = "mask-email"
"""Of this one what must come out is plain without a second Spark, which takes long to start."""
ADDRESS = re.compile(r"[\w.%+-]@")


# -- what the page promises of each recipe, beside what Spark says --------------------------------


def check_masked(topic: str, source: Sequence[Record], got: Contents) -> None:
    """No name before any @, and what was JSON is the same JSON but for that."""
    seen = 0
    for row, (_, _, value, _) in beside(topic, source, got):
        if row.value is None or value is None:
            assert row.value is value
            continue
        before = document(row.value)
        for old, new in zip(texts(before), texts(before and document(value)), strict=True):
            assert not ADDRESS.search(new), (row.value, value)
            assert new == old or "***" in new
            seen += new != old
    assert seen > 20


def check_one_country(topic: str, source: Sequence[Record], got: Contents) -> None:
    """Of the documents those of one country, and tombstones."""
    arrived_numbers = {number(content) for rows in got.values() for content in rows}
    dropped = kept = 0
    for row in source:
        fields = generated(row.value)
        if row.value is None or (fields is not None and fields.get("country") == "DE"):
            assert number_of(row) in arrived_numbers
            kept += 1
        elif fields is not None:
            assert number_of(row) not in arrived_numbers
            dropped += 1
    assert kept > 20
    assert dropped > 20


def check_hashed(topic: str, source: Sequence[Record], got: Contents) -> None:
    for row, (_, key, _, _) in beside(topic, source, got):
        wanted = None if row.key is None else hashlib.sha256(row.key).hexdigest().encode()
        assert key == wanted


def check_split(topic: str, source: Sequence[Record], got: Contents) -> None:
    """Every document is with its tenant, what has no proper one with the others."""
    names = {name for name, _ in got}
    assert names == {f"A.{topic}.{tenant}" for tenant in ("acme", "globex", "a-1", "7", "other")}
    assert sum(len(rows) for rows in got.values()) == len(source)
    for (name, _), rows in got.items():
        tenant = name.removeprefix(f"A.{topic}.")
        for _, key, value, _ in rows:
            fields = generated(value)
            if fields is not None and fields.get("tenant") is not None:
                named = str(fields["tenant"])
                assert tenant == (named if named in ("acme", "globex", "a-1", "7") else "other")
            elif value is None:
                first = (key or b"").partition(b"/")[0]
                assert tenant == (first.decode() if first in (b"acme", b"globex") else "other")


def check_without_tombstones(topic: str, source: Sequence[Record], got: Contents) -> None:
    rows = [content for part in got.values() for content in part]
    assert all(value is not None for _, _, value, _ in rows)
    assert any(value == b"" for _, _, value, _ in rows)
    assert len(rows) == sum(row.value is not None for row in source) < len(source)


def check_provenance(topic: str, source: Sequence[Record], got: Contents) -> None:
    for row, (_, _, _, headers) in beside(topic, source, got):
        assert headers == (
            *row.headers,
            ("source.cluster", b"A"),
            ("source.topic", topic.encode()),
            ("source.partition", b"%d" % row.partition),
            ("source.offset", b"%d" % row.offset),
        )


CHECKS: dict[str, Check] = {
    "mask-email": check_masked,
    "keep-country": check_one_country,
    "hash-key": check_hashed,
    "split-by-tenant": check_split,
    "drop-tombstones": check_without_tombstones,
    "provenance": check_provenance,
}


def beside(topic: str, source: Sequence[Record], got: Contents) -> Iterator[tuple[Record, Content]]:
    """Records and their copies, of a recipe that keeps all where they are."""
    rows: dict[int, list[Record]] = defaultdict(list)
    for row in source:
        rows[row.partition].append(row)
    for partition, part in rows.items():
        yield from zip(part, got[f"A.{topic}", partition], strict=True)


def document(value: bytes) -> Any:
    """What a value is in JSON; None if it is none."""
    try:
        return json.loads(value.decode())
    except ValueError:
        return None


def generated(value: bytes | None) -> dict[str, Any] | None:
    """The fields of one of the documents that are like each other."""
    fields = None if value is None else document(value)
    return fields if isinstance(fields, dict) and "text" in fields else None


def texts(value: Any) -> Iterator[str]:
    """All strings in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from texts(each)


def number(content: Content) -> bytes | None:
    return dict(content[3]).get("n")


def number_of(row: Record) -> bytes | None:
    return dict(row.headers).get("n")


# -- tests ----------------------------------------------------------------------------------------


def test_every_query_on_the_page_is_a_recipe_that_is_tested() -> None:
    assert {(role, name) for role, name, _ in blocks("sql")} == {("recipe", n) for n in CHECKS}
    assert recipes().keys() == CHECKS.keys()
    assert all("A->B.transform.sql.file" in recipe.keys for recipe in recipes().values())


def source_topic(cluster: KafkaCluster, name: str, number: int = 60) -> str:
    create_topic(cluster.bootstrap, name, PARTITIONS)
    write_all_sorts(cluster.bootstrap, name, People(name, PARTITIONS), number)
    return name


def check(recipe: Recipe, asked: Asked, wanted: Contents, target: KafkaCluster) -> None:
    got = arrived(target, asked.topic)
    assert_same(got, wanted)
    CHECKS[recipe.name](asked.topic, asked.rows, got)


def test_a_recipe_as_the_page_has_it(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    recipe = recipes()[QUICK]
    topic = source_topic(source_cluster, unique(QUICK))
    asked = Asked.of(source_cluster, topic, recipe.sql)
    (tmp_path / "query.sql").write_text(recipe.sql)
    keys = {
        **head(),
        **properties(
            source_cluster,
            target_cluster,
            emit_heartbeats_enabled="false",
            sync_topic_configs_enabled="false",
        ),
        **recipe.keys,
        "A->B.topics": topic,
        "A->B.transform.sql.file": str(tmp_path / "query.sql"),
    }
    with Mirror(tmp_path, keys) as mirror:
        await_count(mirror, target_cluster, {("A", topic): len(asked.rows)}, PATIENCE_S)
        assert mirror.stop() == 0
    got = arrived(target_cluster, topic)
    for row, (timestamp, key, _, headers) in beside(topic, asked.rows, got):
        assert (timestamp, key, headers) == (row.timestamp, row.key, row.headers)
    CHECKS[recipe.name](topic, asked.rows, got)


@pytest.mark.slow
def test_all_recipes_on_one_worker(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    page = recipes()
    asked = {
        name: Asked.of(source_cluster, source_topic(source_cluster, unique(name), 200), recipe.sql)
        for name, recipe in page.items()
    }
    batch = Batch(list(asked.values()), tmp_path)
    worker = ConnectWorker(tmp_path, worker_properties(target_cluster.bootstrap, unique("recipes")))
    with worker:
        worker.wait_ready()
        for name, recipe in page.items():
            config = recipe.connector()
            del config["transform.sql.file"]
            worker.put(
                name,
                {
                    **config,
                    "connector.class": f"{MIRROR}.MirrorSourceConnector",
                    "source.cluster.alias": "A",
                    "target.cluster.alias": "B",
                    "source.cluster.bootstrap.servers": source_cluster.bootstrap,
                    "target.cluster.bootstrap.servers": target_cluster.bootstrap,
                    "replication.factor": "-1",
                    "heartbeats.replication.enabled": "false",
                    "topics": asked[name].topic,
                    "transform.sql": recipe.sql,
                    "tasks.max": "2",
                },
            )
        wanted = dict(zip(asked, batch.contents(), strict=True))
        goals = {("A", asked[name].topic): total(contents) for name, contents in wanted.items()}
        await_count(worker, target_cluster, goals, PATIENCE_S)
    for name, recipe in page.items():
        check(recipe, asked[name], wanted[name], target_cluster)
