"""Brokers of other makes, as source and as target: every record arrives once, in order and unchanged, over a kill."""

from __future__ import annotations

import pytest
from broker_profiles import PROFILES
from broker_proxy import Shown
from kafka_tools import consume, create_topic, delete_topic, topics, wait_for
from shown_flows import ShownFlows
from versioned import VersionedTopic

from sparkmirror.formats.position import decode


@pytest.mark.slow
@pytest.mark.parametrize("role", ["source", "target"])
@pytest.mark.parametrize("profile", PROFILES)
def test_records_arrive_once_over_a_kill(flows: ShownFlows, profile: str, role: str) -> None:
    flows.show(PROFILES[profile])
    mirror, topic = flows.mirror(role)
    topic.produce(600, compression_type="lz4", batch_num_messages=50)
    with topic.load():
        topic.await_end(topic.end() + 1)
        mirror.kill()
        mirror.start()
        topic.await_end(topic.end() + 300)
    topic.await_all()
    assert topic.check() > 600


# What is on the wire between us and Apache Kafka 4.3: API keys with the version of each.
FROM_SOURCE = {
    0: 13,
    1: 13,
    2: 11,
    3: 13,
    10: 3,
    11: 9,
    12: 4,
    14: 5,
    16: 5,
    18: 3,
    29: 3,
    32: 4,
    60: 2,
}
TO_TARGET = {
    0: 13,
    1: 13,
    2: 11,
    3: 13,
    10: 3,
    11: 9,
    12: 4,
    14: 5,
    18: 3,
    19: 7,
    22: 4,
    32: 4,
    60: 2,
    61: 0,
}
SOMETIMES = {13: 5, 19: 7, 23: 4}
"""When a worker ends in order; when a topic is missing; when a position was written before a kill."""


@pytest.mark.slow
@pytest.mark.parametrize(("role", "wire"), [("source", FROM_SOURCE), ("target", TO_TARGET)])
def test_the_newest_versions_are_used_with_the_newest_brokers(
    flows: ShownFlows, role: str, wire: dict[int, int]
) -> None:
    flows.show(Shown())
    mirror, topic = flows.mirror(role)
    topic.produce(300)
    topic.await_all()
    mirror.kill()
    topic.produce(300)
    mirror.start()
    topic.await_all()
    (proxy,) = flows.shown.proxies.values()
    assert wire.items() <= proxy.requests <= (wire | SOMETIMES).items()


# -- single APIs ------------------------------------------------------------------------------------

CREATE_TOPICS, INIT_PRODUCER_ID, DESCRIBE_CONFIGS = 19, 22, 32
INCREMENTAL_ALTER_CONFIGS, DESCRIBE_PRODUCERS = 44, 61
DENIED = 29
SAID_WITHIN_S = 10.0
ODD = {
    "without-DescribeConfigs": Shown(hidden=frozenset({DESCRIBE_CONFIGS})),
    "DescribeConfigs-denied": Shown(refused={DESCRIBE_CONFIGS: DENIED}),
    "without-IncrementalAlterConfigs": Shown(hidden=frozenset({INCREMENTAL_ALTER_CONFIGS})),
    "without-topic-ids": Shown(has_topic_ids=False),
}
UNANSWERED = {
    "closes": Shown(closing=frozenset({DESCRIBE_CONFIGS})),
    "is-silent": Shown(silent=frozenset({DESCRIBE_CONFIGS})),
}


@pytest.mark.slow
@pytest.mark.parametrize("role", ["source", "target"])
@pytest.mark.parametrize("odd", ODD)
def test_what_is_optional_does_not_keep_records_back(
    flows: ShownFlows, odd: str, role: str
) -> None:
    flows.show(ODD[odd])
    mirror, topic = flows.mirror(role)
    topic.produce(300)
    topic.await_all()
    mirror.kill()
    topic.produce(300)
    mirror.start()
    topic.await_all()
    assert topic.check() == 600
    if "DescribeConfigs" in odd:
        assert mirror.says("DescribeConfigs")


@pytest.mark.slow
@pytest.mark.parametrize("role", ["source", "target"])
@pytest.mark.parametrize("how", UNANSWERED)
def test_properties_that_are_not_told(flows: ShownFlows, how: str, role: str) -> None:
    """A source that may only be slow: no topic is created with the wrong properties; one that is there is copied to."""
    flows.show(UNANSWERED[how])
    mirror, topic = flows.mirror(role)
    topic.produce(300)
    mirror.wait_until_says("offers DescribeConfigs, and does not answer it", 60)
    if role == "source":
        assert topic.remote not in topics(topic.target.bootstrap)
        create_topic(topic.target.bootstrap, topic.remote, 3)
    topic.await_all()
    assert topic.check() == 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "shown",
    [
        Shown(closing=frozenset({DESCRIBE_PRODUCERS})),
        Shown(silent=frozenset({DESCRIBE_PRODUCERS})),
    ],
    ids=["closes", "is-silent"],
)
def test_an_api_that_is_offered_and_not_answered(flows: ShownFlows, shown: Shown) -> None:
    """DescribeProducers at a start: it counts as missing within seconds, and that is said."""
    mirror, topic = flows.mirror("target")
    topic.produce(300)
    topic.await_all()
    mirror.kill()
    topic.produce(300)
    flows.show(shown)
    mirror.start()
    mirror.wait_until_says("is ready.", 60)
    mirror.wait_until_says("offers DescribeProducers, and does not answer it", 2 * SAID_WITHIN_S)
    topic.await_all()
    assert topic.check() == 600


@pytest.mark.slow
def test_topics_that_may_not_be_created_are_used_as_they_are(flows: ShownFlows) -> None:
    """What is missing is named with the command that creates it; the offset syncs that are missing do not stop the data."""
    there = flows.shown.internal_bootstrap
    for name in topics(there):
        if name.startswith("mm2-"):  # of tests before
            delete_topic(there, name)
    flows.show(Shown(hidden=frozenset({CREATE_TOPICS})))
    mirror, topic = flows.mirror("source")
    topic.produce(300)
    topic.await_all()
    assert topic.check() == 300
    assert mirror.says("mm2-offset-syncs.B.internal is missing")
    assert mirror.says("kafka-topics.sh --bootstrap-server")
    assert mirror.says("is down; others continue"), "that of the heartbeats to the source"
    assert mirror.stop() != 0
    assert mirror.says("Flow B->")


@pytest.mark.slow
def test_a_worker_without_an_assignment_joins_again(flows: ShownFlows) -> None:
    """As with a broker that makes a new member the follower of a leader that is gone."""
    flows.show(Shown(has_assignments=False))
    mirror, topic = flows.mirror("target")
    topic.produce(300)
    mirror.wait_until_says("gave this worker no assignment that can be read", 60)
    for proxy in flows.shown.proxies.values():
        proxy.shown = Shown()
    topic.await_all()
    assert topic.check() == 300


# -- without idempotence ----------------------------------------------------------------------------

UNSURE = {
    "without-InitProducerId": Shown(hidden=frozenset({INIT_PRODUCER_ID})),
    "producer-ids-are-not-kept": Shown(keeps_producers=False),
}


@pytest.mark.slow
@pytest.mark.parametrize("unsure", UNSURE)
def test_at_least_once_over_two_kills(flows: ShownFlows, unsure: str) -> None:
    flows.show(UNSURE[unsure])
    mirror, topic = flows.mirror("target", mirror_delivery="at-least-once")
    with topic.load():
        topic.await_end(topic.end() + 1)
        for _ in range(2):
            mirror.kill()
            mirror.start()
            topic.await_end(topic.end() + 300)
    topic.await_all()
    sent, arrived = topic.sent(), topic.arrived()
    for partition, records in sent.items():
        rest = iter(arrived[partition])
        assert all(record in rest for record in records), "each is there, and they are in order"
    repeated = sum(map(len, arrived.values())) - sum(map(len, sent.values()))
    assert repeated < 50, "what was seen on the target is not repeated"
    assert mirror.says("mirror.delivery")


@pytest.mark.slow
def test_without_idempotence_nothing_is_copied_unless_it_is_allowed(flows: ShownFlows) -> None:
    flows.show(UNSURE["without-InitProducerId"])
    mirror, topic = flows.mirror("target")
    topic.produce(300)
    mirror.wait_until_says("InitProducerId", 60)
    assert mirror.says("mirror.delivery=at-least-once")
    assert topic.count() == 0


@pytest.mark.slow
def test_producer_ids_that_are_not_kept_are_noticed_before_anything_is_repeated(
    flows: ShownFlows,
) -> None:
    flows.show(UNSURE["producer-ids-are-not-kept"])
    mirror, topic = flows.mirror("target")
    topic.produce(300)
    topic.await_all()
    # A position at which nothing is acknowledged says nothing about numbers: then the content is looked at.
    wait_for("positions are behind the records", lambda: _written_positions(topic) == 3)
    mirror.kill()
    topic.produce(300)
    mirror.start()
    mirror.wait_until_says("is kept without them", 60)
    assert mirror.says("mirror.delivery=at-least-once")
    assert topic.count() == 300


def _written_positions(topic: VersionedTopic) -> int:
    """How many partitions the offsets topic shows as copied."""
    alias = topic.remote.partition(".")[0]
    stored = consume(topic.target.bootstrap, f"mm2-offsets.{alias}.internal")
    own = [record for record in stored if topic.name.encode() in (record.key or b"")]
    positions = {record.key: decode(record.value).position for record in own}
    return sum(position is not None and position.sequence > 0 for position in positions.values())
