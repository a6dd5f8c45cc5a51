"""Where topics have come from: chains, hops, remote topics, and whose checkpoints a topic has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.policy.lineage import checkpoints_source, hops, is_remote_topic, sources
from sparkmirror.policy.naming import DefaultReplicationPolicy, ReplicationPolicy, load_policy

JAVA = "org.apache.kafka.connect.mirror"
ALIASES = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=5)


def default(separator: str = ".") -> ReplicationPolicy:
    return load_policy(
        f"{JAVA}.DefaultReplicationPolicy", {"replication.policy.separator": separator}
    )


def identity(source: str | None = None) -> ReplicationPolicy:
    props = {} if source is None else {"source.cluster.alias": source}
    return load_policy(f"{JAVA}.IdentityReplicationPolicy", props)


class Renaming(DefaultReplicationPolicy):
    """A user's policy: names of checkpoints topics begin with a word, and copies of `loop` come from each other for ever."""

    def checkpoints_topic(self, cluster_alias: str) -> str:
        return f"checkpoints-of-{cluster_alias}"

    def topic_source(self, topic: str) -> str | None:
        return {"ping": "A", "pong": "B"}.get(topic)

    def upstream_topic(self, topic: str) -> str | None:
        return {"ping": "pong", "pong": "ping"}.get(topic)


class Forgetful(DefaultReplicationPolicy):
    """A policy that knows where topics come from but not what they were called there."""

    def upstream_topic(self, topic: str) -> str | None:
        return None


@pytest.mark.parametrize(
    ("topic", "chain"),
    [
        ("heartbeats", ()),
        ("A.heartbeats", ("A",)),
        ("B.A.heartbeats", ("B", "A")),
        ("C.B.A.heartbeats", ("C", "B", "A")),
        ("A.B.A.heartbeats", ("A", "B")),  # ends where it would go round
    ],
)
def test_chains(topic: str, chain: tuple[str, ...]) -> None:
    assert sources(default(), topic) == chain


@given(st.lists(ALIASES, max_size=6, unique=True), st.sampled_from([".", "__", "-", "#"]))
def test_a_chain_is_what_was_written_before_the_topic(chain: list[str], separator: str) -> None:
    policy = default(separator)
    topic = "heartbeats"
    for alias in reversed(chain):
        topic = policy.format_remote_topic(alias, topic)
    assert sources(policy, topic) == tuple(chain)
    assert [hops(policy, [topic], alias) for alias in chain] == list(range(1, len(chain) + 1))
    assert hops(policy, [topic], "nowhere") == -1


def test_the_shortest_way_counts() -> None:
    topics = ["heartbeats", "B.A.heartbeats", "C.B.A.heartbeats", "A.heartbeats", "D.C.heartbeats"]
    found = {alias: hops(default(), topics, alias) for alias in "ABCDE"}
    assert found == {"A": 1, "B": 1, "C": 1, "D": 1, "E": -1}
    assert hops(default(), topics[:3], "A") == 2
    assert hops(default(), [], "A") == -1


def test_a_custom_separator_is_the_only_one() -> None:
    policy = default("__")
    assert sources(policy, "B__A__heartbeats") == ("B", "A")
    assert sources(policy, "B.A.heartbeats") == ()
    assert hops(policy, ["B__A__heartbeats"], "A") == 2


def test_policies_that_go_round_or_forget_end_the_walk() -> None:
    assert sources(Renaming(), "ping") == ("A", "B")
    assert hops(Renaming(), ["ping"], "B") == 2
    assert hops(Renaming(), ["ping"], "C") == -1
    assert sources(Forgetful(), "B.A.heartbeats") == ("B",)


def test_with_identity_only_heartbeats_tell() -> None:
    policy = identity("A")
    assert sources(policy, "B.A.heartbeats") == ("B", "A")
    assert sources(policy, "heartbeats") == ()
    assert sources(policy, "orders") == ("A",)
    assert is_remote_topic(policy, "orders")
    assert not is_remote_topic(identity(), "orders")
    assert is_remote_topic(identity(), "A.heartbeats")
    assert not is_remote_topic(policy, "heartbeats")


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("A.orders", True),
        ("A.heartbeats", True),
        ("heartbeats", False),
        ("orders", False),
        ("A.checkpoints.internal", False),
        ("mm2-offset-syncs.B.internal", False),
        ("__consumer_offsets", False),
    ],
)
def test_remote_topics(topic: str, expected: bool) -> None:
    assert is_remote_topic(default(), topic) is expected


@pytest.mark.parametrize(
    ("policy", "topic", "expected"),
    [
        (default(), "A.checkpoints.internal", "A"),
        (default(), "us.west.checkpoints.internal", "us.west"),
        (default("_"), "A_checkpoints_internal", "A"),
        (default(), ".checkpoints.internal", None),
        (default(), "A.orders", None),
        (identity(), "A.checkpoints.internal", "A"),
        (Renaming(), "checkpoints-of-A", "A"),
        (Renaming(), "A", None),
    ],
)
def test_whose_checkpoints(policy: ReplicationPolicy, topic: str, expected: str | None) -> None:
    assert checkpoints_source(policy, topic) == expected
