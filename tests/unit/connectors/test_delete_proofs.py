"""Which remote topics a flow may delete at all, and what brokers must say first."""

from __future__ import annotations

import pytest

from sparkmirror.connectors.topic_deletes import dissenters, names_source, without_shared
from sparkmirror.kafka import messages
from sparkmirror.policy.naming import DefaultReplicationPolicy, load_policy

_JAVA = "org.apache.kafka.connect.mirror."
_GONE = messages.UNKNOWN_TOPIC_OR_PARTITION


class Suffixes(DefaultReplicationPolicy):
    """Names copies as such, but not where they come from, though it claims to know."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{topic}.copy"

    def topic_source(self, topic: str) -> str | None:
        return "A" if topic.endswith(".copy") else None

    def upstream_topic(self, topic: str) -> str | None:
        return topic.removesuffix(".copy") if topic.endswith(".copy") else None


@pytest.mark.parametrize(
    ("kind", "remote", "expected"),
    [
        ("Default", "A.orders", True),
        ("Default", "A.C.orders", True),
        ("Default", "C.orders", False),
        ("Default", "orders", False),  # transforms may have named it
        ("Identity", "orders", False),  # though the policy says that it comes from A
        ("Identity", "A.orders", False),
        ("Identity", "A.heartbeats", True),
    ],
)
def test_the_name_must_tell_the_source(kind: str, remote: str, expected: bool) -> None:
    policy = load_policy(f"{_JAVA}{kind}ReplicationPolicy", {"source.cluster.alias": "A"})
    assert names_source(policy, "A", "B", remote) is expected


def test_a_policy_of_ones_own_that_leaves_the_alias_out() -> None:
    assert not names_source(Suffixes(), "A", "B", "orders.copy")


def test_a_copy_of_several_topics_waits_for_all_of_them() -> None:
    remotes = {"a": "A.all", "b": "A.all", "c": "A.c"}
    assert without_shared(remotes, ["a", "c"]) == {"c": "A.c"}
    assert without_shared(remotes, ["a", "b"]) == {"a": "A.all", "b": "A.all"}
    assert without_shared(remotes, []) == {}


def test_every_broker_must_say_that_there_is_no_such_topic() -> None:
    assert dissenters({1: {"t": _GONE}, 2: {"t": _GONE}}, "t") == []
    others = {
        1: {"t": _GONE},
        2: {"t": messages.NONE},
        3: {"t": messages.TOPIC_AUTHORIZATION_FAILED},
        4: {},
    }
    assert dissenters(others, "t") == [
        "broker 2 still knows t",
        "broker 3 says TOPIC_AUTHORIZATION_FAILED of t",
        "broker 4 says nothing of t",
    ]
