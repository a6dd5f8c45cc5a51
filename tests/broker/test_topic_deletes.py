"""Remote topics deleted after their source topics, and source topics that are created again."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cluster_pair import ClusterPair
from copying import CONNECTOR, Copying, Flow
from kafka_tools import (
    NewRecord,
    create_topic,
    delete_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from running import Mirror, assert_same, contents, properties
from watching import NAME, Watching, connector_config, worker_config

from sparkmirror.connectors.ledger import Ledger
from sparkmirror.connectors.source_settings import source_settings
from sparkmirror.connectors.topic_deletes import TopicDeletes
from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.kafka.cluster import NO_TOPIC_ID, Broker, Cluster

Unique = Callable[[str], str]
MODULE = "sparkmirror.connectors.topic_deletes"
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
assert NAME == CONNECTOR  # one connector: its topics are watched here, its tasks run there


class Deleted:
    """A topic that will be deleted, one that stays, and a flow of both whose tasks run in threads."""

    def __init__(self, pair: ClusterPair, unique: Unique) -> None:
        self.source, self.target = pair.source.bootstrap, pair.target.bootstrap
        self.flow = Flow(pair.source, pair.target, unique("f"))
        self.gone, self.kept = unique("gone"), unique("kept")
        self.remote = f"A.{self.gone}"
        for topic in (self.gone, self.kept):
            create_topic(self.source, topic, 2)
            produce(self.source, topic, [NewRecord(b"k", b"v%d" % n, n % 2) for n in range(20)])

    def watching(self, grace_ms: int = 0, **keys: str) -> Watching:
        keys = {
            "sync_topic_deletes_enabled": "true",
            "sync_topic_deletes_grace_ms": str(grace_ms),
            **keys,
        }
        wanted = f"{self.gone},{self.kept}"
        return Watching(
            connector_config(self.source, self.target, wanted, **keys), self.flow.offsets_topic
        )

    def copy(self, topic: str, count: int, remote: str = "") -> None:
        """Run tasks for a topic until the copy holds that many records."""
        remote = remote or f"A.{topic}"
        self.flow.source.refresh([topic])
        self.flow.target.refresh([remote])
        plans = [PartitionPlan(topic, partition, remote) for partition in range(2)]
        with self.flow.copying(plans) as task:
            self._until(task, remote, count)

    def _until(self, task: Copying, remote: str, count: int) -> None:
        task.until(
            f"{remote} holds {count}",
            lambda: sum(end_offsets(self.target, remote).values()) >= count,
        )

    def has(self, remote: str) -> bool:
        return remote in topics(self.target)

    def positions(self) -> list[object]:
        store = PositionStore(self.flow.target, self.flow.store)
        self.flow.target.refresh([self.flow.offsets_topic])
        store.catch_up()
        return [store.get((self.gone, partition)) for partition in range(2)]

    def seen(self) -> set[str]:
        return set(Ledger(self.flow.target, self.flow.store, "seen-topics").entries())


@pytest.fixture
def deleted(cluster_pair: ClusterPair, unique: Unique) -> Iterator[Deleted]:
    made = Deleted(cluster_pair, unique)
    yield made
    made.flow.close()


def said(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == MODULE and words in r.getMessage()]


def test_a_copy_goes_with_its_source_and_begins_anew_with_it(
    deleted: Deleted, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    d = deleted
    with d.watching(1000):
        wait_for("the copies are there", lambda: d.has(d.remote) and d.has(f"A.{d.kept}"))
        d.copy(d.gone, 20)
        wait_for("both were seen", lambda: d.seen() == {d.gone, d.kept})
        delete_topic(d.source, d.gone)
        wait_for("it is announced", lambda: said(caplog, "will be deleted at"))
        assert d.has(d.remote)
        wait_for("the copy is deleted", lambda: not d.has(d.remote))
        wait_for("its positions are gone", lambda: d.positions() == [None, None])
        assert d.seen() == {d.kept}
        create_topic(d.source, d.gone, 2)
        produce(d.source, d.gone, [NewRecord(b"k", b"new", 0)] * 3)
        wait_for("it is copied again", lambda: d.has(d.remote))
        d.copy(d.gone, 3)
    assert d.has(f"A.{d.kept}")
    assert len(said(caplog, "will be deleted at")) == 1
    assert len(said(caplog, "deleted topic")) == 1
    assert not said(caplog, "is there again")


@pytest.mark.slow
def test_what_was_deleted_while_nobody_looked_is_found_after_a_restart(deleted: Deleted) -> None:
    d = deleted
    with d.watching():
        wait_for("the copies are there", lambda: d.has(d.remote) and d.has(f"A.{d.kept}"))
        d.copy(d.gone, 20)
        wait_for("both were seen", lambda: d.seen() == {d.gone, d.kept})
    delete_topic(d.source, d.gone)
    with d.watching():
        wait_for("the copy is deleted", lambda: not d.has(d.remote))
    assert d.has(f"A.{d.kept}")


@pytest.mark.slow
def test_a_topic_that_comes_back_in_time_keeps_its_copy(
    deleted: Deleted, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    d = deleted
    with d.watching(600_000):
        wait_for("the copies are there", lambda: d.has(d.remote) and d.has(f"A.{d.kept}"))
        d.copy(d.gone, 20)
        wait_for("both were seen", lambda: d.seen() == {d.gone, d.kept})
        delete_topic(d.source, d.gone)
        wait_for("it is announced", lambda: said(caplog, "will be deleted at"))
        create_topic(d.source, d.gone, 2)
        produce(d.source, d.gone, [NewRecord(b"k", b"new", n % 2) for n in range(6)])
        wait_for("it is called off", lambda: said(caplog, "is there again"))
        d.copy(d.gone, 26)  # behind the old ones


@pytest.mark.slow
def test_a_copy_that_somebody_else_has_made_stays(
    deleted: Deleted, caplog: pytest.LogCaptureFixture
) -> None:
    """Deleted by hand and created again, so no position speaks of it; and one that no task of this flow ever wrote."""
    caplog.set_level(logging.INFO)
    d = deleted
    with d.watching():
        wait_for("the copies are there", lambda: d.has(d.remote) and d.has(f"A.{d.kept}"))
        d.copy(d.gone, 20)
        wait_for("both were seen", lambda: d.seen() == {d.gone, d.kept})
    delete_topic(d.target, d.remote)
    wait_for("it is gone", lambda: not d.has(d.remote))
    create_topic(d.target, d.remote, 2)
    delete_topic(d.source, d.gone)
    with d.watching():
        wait_for("it is told", lambda: said(caplog, "no stored position says"))
    assert d.has(d.remote)


def test_topics_stay_if_the_source_is_another_cluster_or_empty(
    deleted: Deleted, caplog: pytest.LogCaptureFixture
) -> None:
    d = deleted
    with d.watching():
        wait_for("the copies are there", lambda: d.has(d.remote) and d.has(f"A.{d.kept}"))
        d.copy(d.gone, 20)
        wait_for("both were seen", lambda: d.seen() == {d.gone, d.kept})
    delete_topic(d.source, d.gone)
    with looking(d, source=d.target) as (_, _, look):
        for _ in range(3):
            look()
        assert said(caplog, "will be deleted at") == []
    with looking(d) as (source, _, look):
        source.topics = {}
        for _ in range(3):  # the first one only learns which cluster it is
            look()
        assert said(caplog, "will be deleted at") == []
        assert len(said(caplog, "has no topics at all")) == 1
        source.refresh(None)
        look()
        wait_for("now it is deleted", lambda: not d.has(d.remote))
    assert d.has(f"A.{d.kept}")


@pytest.mark.slow
def test_a_copy_that_others_write_too_stays(
    deleted: Deleted, caplog: pytest.LogCaptureFixture
) -> None:
    d = deleted
    with d.watching():
        wait_for("the copies are there", lambda: d.has(d.remote) and d.has(f"A.{d.kept}"))
        d.copy(d.gone, 20)
        wait_for("both were seen", lambda: d.seen() == {d.gone, d.kept})
    foreign = [NewRecord(b"k", b"local", n % 2) for n in range(30)]
    produce(d.target, d.remote, foreign, enable_idempotence=True)
    delete_topic(d.source, d.gone)
    with looking(d) as (_, _, look):
        for _ in range(4):
            look()
    assert sum(end_offsets(d.target, d.remote).values()) == 50
    (told,) = said(caplog, "somebody else")
    assert d.remote in told
    assert d.positions() != [None, None]


@pytest.mark.slow
def test_a_copy_whose_name_does_not_tell_its_source_stays(
    deleted: Deleted, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever writes without a producer id is not known to the brokers, so the name has to tell."""
    d = deleted
    keys = {"replication_policy_class": IDENTITY}
    with d.watching(0, **keys):
        wait_for("the copies are there", lambda: d.has(d.gone) and d.has(d.kept))
        d.copy(d.gone, 20, d.gone)
        wait_for("both were seen", lambda: d.seen() == {d.gone, d.kept})
    produce(d.target, d.gone, [NewRecord(b"k", b"local", n % 2) for n in range(30)])
    delete_topic(d.source, d.gone)
    with looking(d, **keys) as (_, _, look):
        for _ in range(4):
            look()
    assert sum(end_offsets(d.target, d.gone).values()) == 50
    assert said(caplog, "will be deleted at") == []
    (told,) = said(caplog, "does not tell")
    assert d.gone in told


@pytest.mark.slow
def test_topics_stay_until_every_broker_agrees_and_the_copy_has_an_id(
    deleted: Deleted, caplog: pytest.LogCaptureFixture
) -> None:
    """A broker that cannot be reached, one that still knows the topic (here: the target's), and a copy without an id."""
    d = deleted
    with d.watching():
        wait_for("the copies are there", lambda: d.has(d.remote) and d.has(f"A.{d.kept}"))
        d.copy(d.gone, 20)
        wait_for("both were seen", lambda: d.seen() == {d.gone, d.kept})
    delete_topic(d.source, d.gone)
    create_topic(d.target, d.gone, 1)
    with looking(d) as (source, target, look):
        known = target.topics[d.remote]
        target.topics[d.remote] = replace(known, topic_id=NO_TOPIC_ID)
        for _ in range(3):
            look()
        assert len(said(caplog, "has no id")) == 1
        assert said(caplog, "will be deleted at") == []
        target.topics[d.remote] = known
        source.brokers[99] = Broker(99, "127.0.0.1", 1)
        look()
        look()
        assert len(said(caplog, "cannot be asked")) == 1
        source.brokers[99] = replace(next(iter(target.brokers.values())), node=99)
        look()
        look()
        (told,) = said(caplog, "broker 99")
        assert "NONE" not in told
        assert d.has(d.remote)
        assert said(caplog, "deleted topic") == []
        del source.brokers[99]
        look()
        wait_for("now it is deleted", lambda: not d.has(d.remote))
    assert d.has(f"A.{d.kept}")


@contextlib.contextmanager
def looking(
    d: Deleted, source: str = "", **keys: str
) -> Iterator[tuple[Cluster, Cluster, Callable[[], None]]]:
    """Both clusters as a connector knows them, and one look at what is missing, without a connector around it."""
    keys = {
        "sync_topic_deletes_enabled": "true",
        "sync_topic_deletes_grace_ms": "0",
        **keys,
    }
    config = connector_config(source or d.source, d.target, f"{d.gone},{d.kept}", **keys)
    settings = source_settings(config, worker_config(d.target, d.flow.offsets_topic))
    here, there = Cluster(settings.source), Cluster(settings.target)
    home = Cluster(settings.store_cluster)
    here.refresh(None)
    there.refresh(None)
    deletes = TopicDeletes(settings, here, there, home, "test")
    yield here, there, lambda: deletes.look([(d.kept, 0), (d.kept, 1)] if not source else [])
    for cluster in (here, there, home):
        cluster.close()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("deletes", [False, True])
def test_a_topic_is_deleted_and_created_again_while_everything_runs(
    cluster_pair: ClusterPair, unique: Unique, tmp_path: Path, deletes: bool
) -> None:
    """With deletes the copy begins anew; without, the new records follow the old ones."""
    source, target = cluster_pair
    topic, kept = unique("again"), unique("kept")
    remote = f"A.{topic}"
    for name in (topic, kept):
        create_topic(source.bootstrap, name, 2)
        produce(source.bootstrap, name, [NewRecord(b"k", b"old%d" % n, n % 2) for n in range(50)])
    keys = properties(
        source,
        target,
        flow_topics=f"{topic},{kept}",
        flow_sync_topic_deletes_enabled=str(deletes).lower(),
        flow_sync_topic_deletes_grace_ms="1000",
        refresh_topics_interval_seconds="1",
        heartbeats_replication_enabled="false",
    )

    def holds(count: int) -> bool:
        known = topics(target.bootstrap)
        return remote in known and sum(end_offsets(target.bootstrap, remote).values()) == count

    with Mirror(tmp_path, keys) as mirror:
        wait_for("all is copied", lambda: holds(50), 180)
        old = contents(target, remote)
        delete_topic(source.bootstrap, topic)
        if deletes:
            mirror.wait_until_says("will be deleted at")
            wait_for("the copy is deleted", lambda: remote not in topics(target.bootstrap))
            mirror.wait_until_says("deleted topic")
        else:
            wait_for("its end is noticed", lambda: mirror.says("2 gone"))
        create_topic(source.bootstrap, topic, 2)
        new = [NewRecord(b"k", b"new%d" % n, n % 2) for n in range(30)]
        produce(source.bootstrap, topic, new)
        wait_for("the new ones are copied", lambda: holds(30 if deletes else 80))
        produce(source.bootstrap, topic, new)
        wait_for("and so are later ones", lambda: holds(60 if deletes else 110))
    if deletes:
        assert assert_same(source, topic, target, remote) == 60
    else:
        fresh = contents(source, topic)
        assert contents(target, remote) == {p: old[p] + fresh[p] for p in (0, 1)}
