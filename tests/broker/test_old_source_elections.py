"""Unclean elections on a source whose Fetch carries no last fetched epoch, so that no broker reports a log that diverges."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from copied import Copied, Unique, numbered
from kafka_tools import QUICK_JVM, leaders, wait_for

from sparkmirror.tools.clusters import KafkaCluster

pytestmark = pytest.mark.slow
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


@pytest.fixture(scope="module")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    directory = tmp_path_factory.mktemp("old-source")
    with KafkaCluster("source", 2, directory, jvm=QUICK_JVM, version="2.4.1") as cluster:
        yield cluster


def test_a_log_that_was_cut_back_and_grew_past_the_position_before_the_next_fetch(
    old_source: KafkaCluster,
    target_cluster: KafkaCluster,
    unique: Unique,
    caplog: pytest.LogCaptureFixture,
) -> None:
    copied = Copied(old_source, target_cluster, unique, configs=UNCLEAN)
    copied.produce(numbered(700))
    with copied.copying() as task:
        copied.until(task, 700)
        leader = leaders(old_source.bootstrap, copied.topic)[0]
        (follower,) = set(old_source.nodes) - {leader}
        old_source.stop(follower)
        copied.produce(numbered(300, first=700))
        copied.until(task, 1000)
        task.hold()
        old_source.kill(leader)
        old_source.restart(follower)
        led = {0: follower}
        wait_for("the follower leads", lambda: leaders(old_source.bootstrap, copied.topic) == led)
        copied.produce(numbered(800, first=5000))
        task.release()
        task.until("all is copied", lambda: copied.end() >= 1500)
        copied.until(task, 1800)
    copied.close()
    old_source.restart(leader)
    keys = [key for _, _, key, _, _ in copied.arrived()]
    assert keys == [b"k%d" % i for i in (*range(1000), *range(5000, 5800))]
    assert "was cut back to offset 700 (unclean leader election)" in caplog.text
