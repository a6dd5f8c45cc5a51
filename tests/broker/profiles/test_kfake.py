"""A Kafka cluster that is not Apache's, as source and as target."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from cluster_pair import ClusterPair
from kafka_tools import wait_for
from kfake_cluster import KfakeCluster
from running import Mirror
from shown_cluster import ShownCluster
from shown_flows import Direct, Unique
from versioned import PREFIX, VersionedTopic, mirror_keys

from sparkmirror.tools.clusters import KafkaCluster

BETWEEN_KILLS_S = 3.5
HAS_JOINED = "task(s) since generation"
"""Of both groups, before the second kill. While a join waits, kfake has no timer for who has asked for it: a member that is
killed then stays in the group for ever, and work that the leader gives to it is done by nobody. Apache's coordinators remove
it."""


@pytest.mark.slow
@pytest.mark.parametrize("role", ["source", "target"])
def test_records_arrive_once_over_two_kills(
    clusters: tuple[ShownCluster, KafkaCluster], tmp_path: Path, unique: Unique, role: str
) -> None:
    with KfakeCluster() as kfake:
        apache: Any = Direct(clusters[1])
        pair: Any = (kfake, apache) if role == "source" else (apache, kfake)
        alias = unique("k")
        topic = VersionedTopic(ClusterPair(*pair), f"{PREFIX}-{alias}", 3, alias=alias)
        keys = mirror_keys(dict(zip((alias, "B"), pair, strict=True)), f"{alias}->B")
        # kfake gives work to the member that was killed while it joined; others get it when that has not come back.
        keys |= {"B.scheduled.rebalance.max.delay.ms": "1000"}
        keys |= {"topics": topic.name, "groups": topic.name}
        with Mirror(tmp_path, keys) as mirror:
            with topic.load():
                topic.await_end(topic.end() + 1)
                mirror.kill()
                joined = mirror.output.count(HAS_JOINED)
                mirror.start()
                time.sleep(BETWEEN_KILLS_S)
                wait_for("it has joined", lambda: mirror.output.count(HAS_JOINED) >= joined + 2)
                mirror.kill()
                mirror.start()
                topic.await_end(topic.end() + 300)
            topic.await_all(40.0)
            assert topic.check() > 300
