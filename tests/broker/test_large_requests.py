"""Requests about many topics, against a controller that takes 10,000 records in one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from cluster_pair import ClusterPair
from copying import settings_of
from kafka_tools import create_topic

from sparkmirror.kafka import admin
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.dry_run import try_creating
from sparkmirror.kafka.request_parts import Bound
from sparkmirror.offsets.groups import GroupOffset, Groups

Unique = Callable[[str], str]


@pytest.fixture
def target(cluster_pair: ClusterPair) -> Iterator[Cluster]:
    with contextlib.closing(Cluster(settings_of("B", cluster_pair.target))) as cluster:
        cluster.refresh([])
        yield cluster


def test_a_thousand_topics_with_ten_partitions_each_are_taken(
    target: Cluster, unique: Unique
) -> None:
    name = unique("orders")
    wanted = [NewTopic(f"{name}-{number}", 10, 1, {}) for number in range(1000)]
    found = try_creating(target, wanted)
    assert found.keys() == {topic.name for topic in wanted}
    assert [creation.error for creation in found.values() if creation.error is not None] == []


def test_a_request_that_the_controller_refuses_as_too_large_is_halved(
    target: Cluster, unique: Unique, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin, "CREATION", Bound(100_000))
    name = unique("orders")
    wanted = [NewTopic(f"{name}-{number}", 600, 1, {}) for number in range(40)]
    found = try_creating(target, wanted)
    assert {name: creation.error for name, creation in found.items()} == dict.fromkeys(
        topic.name for topic in wanted
    )


def test_a_topic_that_is_too_large_by_itself_fails_alone_and_says_why(
    target: Cluster, unique: Unique
) -> None:
    large, small = unique("large"), unique("small")
    found = try_creating(target, [NewTopic(large, 20_000, 1, {}), NewTopic(small, 10, 1, {})])
    assert found[small].error is None
    error = found[large].error
    assert error is not None
    assert error.name == "POLICY_VIOLATION"
    assert large in str(error)
    assert "20000 partitions" in str(error)


def test_a_commit_that_is_larger_than_a_batch_of_the_coordinator_is_halved(
    cluster_pair: ClusterPair, target: Cluster, unique: Unique
) -> None:
    topic, group = unique("orders"), unique("group")
    create_topic(cluster_pair.target.bootstrap, topic, 300)
    wanted = {(topic, number): GroupOffset(number, "x" * 4000) for number in range(300)}
    groups = Groups(target)
    answers = groups.commit({group: wanted})
    assert answers.failed == {}
    assert answers.found == {group: 300}
    assert groups.committed([group]).found == {group: wanted}
