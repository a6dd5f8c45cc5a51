"""Topics of one partition while their broker is away."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka_tools import consume, create_topic, leaders, wait_for

from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings
from sparkmirror.offsets.internal_topic import InternalTopic
from sparkmirror.tools.clusters import KafkaCluster


@pytest.mark.slow
def test_a_topic_that_had_no_leader_is_written_and_read_once_it_has_one(
    three_broker_target: KafkaCluster, unique: Callable[[str], str]
) -> None:
    brokers, name = three_broker_target, unique("internal")
    create_topic(brokers.bootstrap, name, replication=1)
    (node,) = leaders(brokers.bootstrap, name).values()
    cluster = Cluster(client_settings("target", {"bootstrap.servers": brokers.bootstrap}))
    written, read = InternalTopic(cluster, name), InternalTopic(cluster, name)

    def has_no_leader() -> bool:
        try:
            written.append([(b"key", b"lost")], 0)
        except KafkaError as error:
            return isinstance(error, BrokerError) and error.code == messages.LEADER_NOT_AVAILABLE
        return False

    brokers.kill(node)
    try:
        wait_for("the client knows of no leader", has_no_leader)
    finally:
        brokers.restart(node)
    wait_for("there is a leader", lambda: leaders(brokers.bootstrap, name))
    written.append([(b"key", b"value")], 0)
    assert [row.value for row in read.poll(1.0)] == [b"value"]
    assert [row.value for row in consume(brokers.bootstrap, name)] == [b"value"]
    cluster.close()
