"""The proxy before a broker: what clients see through it of a real broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from broker_proxy import API_VERSIONS, METADATA, PRODUCE, Shown
from confluent_kafka import Producer
from kafka_tools import NewRecord, consume, create_topic, produce
from shown_cluster import ShownCluster

from sparkmirror.errors import BrokerError, ConnectionFailed
from sparkmirror.kafka import admin, messages
from sparkmirror.kafka.cluster import NO_TOPIC_ID, Cluster
from sparkmirror.kafka.settings import client_settings

FETCH, DESCRIBE_CONFIGS, INIT_PRODUCER_ID, DESCRIBE_PRODUCERS = 1, 32, 22, 61
Unique = Callable[[str], str]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ShownCluster]:
    with ShownCluster("shown", 1, tmp_path_factory.mktemp("shown"), Shown()) as cluster:
        yield cluster


@pytest.fixture
def show(broker: ShownCluster) -> Iterator[Callable[[Shown], Cluster]]:
    """Have the broker show this; gives a client of it."""
    clients: list[Cluster] = []
    proxy = broker.proxies[1]

    def shown(what: Shown) -> Cluster:
        proxy.shown = what
        proxy.requests.clear()
        keys = {"bootstrap.servers": broker.bootstrap, "request.timeout.ms": "2000"}
        clients.append(Cluster(client_settings("shown", keys)))
        return clients[-1]

    yield shown
    proxy.shown = Shown()
    for client in clients:
        client.close()


def test_versions_are_capped_and_apis_hidden(
    broker: ShownCluster, show: Callable[[Shown], Cluster]
) -> None:
    client = show(Shown({FETCH: 11, METADATA: 7, API_VERSIONS: 2}, frozenset({DESCRIBE_CONFIGS})))
    versions = client.any_connection().versions
    assert (versions[FETCH], versions[METADATA][1]) == ((4, 11), 7)
    assert DESCRIBE_CONFIGS not in versions
    client.refresh([])
    assert {pair for pair in broker.proxies[1].requests if pair[0] == METADATA} == {(METADATA, 7)}
    assert client.brokers[1].port == int(broker.bootstrap.rpartition(":")[2])


def test_what_is_not_offered_closes_the_connection(show: Callable[[Shown], Cluster]) -> None:
    client = show(Shown(closing=frozenset({METADATA})))
    with pytest.raises(ConnectionFailed, match="closed"):
        client.refresh([])


def test_a_silent_api_is_never_answered(show: Callable[[Shown], Cluster]) -> None:
    client = show(Shown(silent=frozenset({METADATA})))
    with pytest.raises(ConnectionFailed, match="no answer within"):
        client.refresh([])


def test_an_api_is_refused(
    broker: ShownCluster, show: Callable[[Shown], Cluster], unique: Unique
) -> None:
    topic = unique("t")
    create_topic(broker.internal_bootstrap, topic, 1)
    client = show(Shown(refused={2: messages.TOPIC_AUTHORIZATION_FAILED}))
    client.refresh([topic])
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.list_offsets(client, [(topic, 0)], admin.LATEST)


def test_topic_ids_are_kept_back(
    broker: ShownCluster, show: Callable[[Shown], Cluster], unique: Unique
) -> None:
    topic = unique("t")
    create_topic(broker.internal_bootstrap, topic, 1)
    client = show(Shown())
    client.refresh([topic])
    assert client.topic(topic).topic_id != NO_TOPIC_ID
    client = show(Shown(has_topic_ids=False))
    client.refresh([topic])
    assert client.topic(topic).topic_id == NO_TOPIC_ID


@pytest.mark.parametrize("keeps_producers", [True, False])
def test_producers_are_forgotten(
    broker: ShownCluster, show: Callable[[Shown], Cluster], unique: Unique, keeps_producers: bool
) -> None:
    topic = unique("t")
    create_topic(broker.internal_bootstrap, topic, 1)
    client = show(Shown(keeps_producers=keeps_producers))
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
    for number in range(100):
        producer.produce(topic, b"%d" % number, b"k")
    assert producer.flush(30) == 0
    assert any(api == PRODUCE for api, _ in broker.proxies[1].requests)
    assert len(consume(broker.internal_bootstrap, topic)) == 100
    client.refresh([topic])
    known = admin.describe_producers(client, [(topic, 0)])
    assert known is not None
    assert bool(known[topic, 0]) == keeps_producers


def test_records_pass(broker: ShownCluster, unique: Unique) -> None:
    topic = unique("t")
    create_topic(broker.internal_bootstrap, topic, 2)
    produce(broker.bootstrap, topic, [NewRecord(b"k", b"%d" % n, n % 2) for n in range(10)])
    assert len(consume(broker.bootstrap, topic)) == 10
