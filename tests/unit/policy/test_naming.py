"""Names of remote and internal topics, and cycles."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import ConfigError
from sparkmirror.policy.naming import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
    is_cycle,
    load_policy,
)

JAVA = "org.apache.kafka.connect.mirror"


def default(**properties: str) -> ReplicationPolicy:
    dotted = {f"replication.policy.{k.replace('_', '.')}": v for k, v in properties.items()}
    return load_policy(f"{JAVA}.DefaultReplicationPolicy", dotted)


def identity(source: str = "source") -> ReplicationPolicy:
    return load_policy(f"{JAVA}.IdentityReplicationPolicy", {"source.cluster.alias": source})


def test_remote_topics_carry_the_alias() -> None:
    policy = default()
    assert policy.format_remote_topic("A", "orders") == "A.orders"
    assert policy.topic_source("A.orders") == "A"
    assert policy.upstream_topic("B.A.orders") == "A.orders"
    assert policy.original_topic("B.A.orders") == "orders"
    assert policy.upstream_topic("orders") is None


@pytest.mark.parametrize(
    ("topic", "source", "upstream", "original"),
    [
        ("foo.bar", "foo", "bar", "bar"),
        ("topic.", None, None, "topic."),
        (".b", "", "b", "b"),
        ("..", None, None, ".."),
        ("a..b", "a", ".b", "b"),
        ("", None, None, ""),
    ],
)
def test_odd_names_are_split_as_java_splits(
    topic: str, source: str | None, upstream: str | None, original: str
) -> None:
    policy = default()
    assert policy.topic_source(topic) == source
    assert policy.upstream_topic(topic) == upstream
    assert policy.original_topic(topic) == original


def test_an_empty_separator_splits_between_characters_as_in_java() -> None:
    policy = default(separator="")
    assert policy.format_remote_topic("", "orders") == "orders"
    assert policy.topic_source("orders") == "o"
    assert policy.topic_source("o") is None


def test_internal_topics_use_the_separator_unless_told_not_to() -> None:
    assert default().offset_syncs_topic("B") == "mm2-offset-syncs.B.internal"
    assert default().checkpoints_topic("A") == "A.checkpoints.internal"
    assert default(separator="_").offset_syncs_topic("B") == "mm2-offset-syncs_B_internal"
    legacy = default(separator="_", internal_topic_separator_enabled="false")
    assert legacy.offset_syncs_topic("B") == "mm2-offset-syncs.B.internal"
    assert legacy.checkpoints_topic("A") == "A.checkpoints.internal"
    assert legacy.format_remote_topic("A", "t") == "A_t"
    assert legacy.heartbeats_topic() == "heartbeats"


def test_the_internal_separator_counts_only_together_with_a_separator() -> None:
    alone = default(internal_topic_separator_enabled="false")
    assert alone.checkpoints_topic("A") == "A.checkpoints.internal"


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("heartbeats", True),
        ("source1.heartbeats", True),
        ("source2.source1.heartbeats", True),
        ("heartbeats!", False),
        ("!heartbeats", False),
        ("source1heartbeats", False),
        ("source1-heartbeats", False),
    ],
)
def test_heartbeats_topics(topic: str, expected: bool) -> None:
    assert default().is_heartbeats_topic(topic) is expected


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("source1.checkpoints.internal", True),
        ("checkpoints.internal", False),
        ("checkpoints-internal", False),
        ("source1.checkpoints.internal!", False),
        ("source1-checkpoints.internal", False),
    ],
)
def test_checkpoints_topics(topic: str, expected: bool) -> None:
    assert default().is_checkpoints_topic(topic) is expected


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("mm2-offset-syncs.B.internal", True),
        ("mm2-configs.A.internal", True),
        ("A.checkpoints.internal", True),
        ("__consumer_offsets", True),
        (".hidden", True),
        ("billing.internal", False),
        ("billing-internal", False),
        ("A.mm2.internal", False),
        ("_schemas", False),
    ],
)
def test_internal_topics(topic: str, expected: bool) -> None:
    assert default().is_internal_topic(topic) is expected


def test_identity_keeps_names_but_those_of_heartbeats() -> None:
    policy = identity("A")
    assert policy.format_remote_topic("A", "orders") == "orders"
    assert policy.topic_source("orders") == "A"
    assert policy.topic_source("foo.bar") == "A"
    assert policy.upstream_topic("foo.bar") == policy.original_topic("foo.bar") == "foo.bar"
    assert policy.format_remote_topic("A", "heartbeats") == "A.heartbeats"
    assert policy.topic_source("heartbeats") is None
    assert policy.upstream_topic("backup.heartbeats") == "heartbeats"
    assert policy.format_remote_topic("A", "my-heartbeats") == "A.my-heartbeats"
    assert policy.is_heartbeats_topic("my-heartbeats") is False
    assert policy.checkpoints_topic("A") == "A.checkpoints.internal"


def test_identity_without_a_source_knows_no_source() -> None:
    assert load_policy(f"{JAVA}.IdentityReplicationPolicy", {}).topic_source("t") is None


@pytest.mark.parametrize(
    "topic",
    [
        "target.topic1",
        "target.source.topic1",
        "source.target.topic1",
        "source.target.source.topic1",
        "target.source.target.topic1",
        "target.source.source.topic1",
        "source.source.target.topic1",
    ],
)
def test_topics_that_passed_the_target_are_cycles(topic: str) -> None:
    assert is_cycle(default(), topic, "target")
    assert not is_cycle(identity(), topic, "target")


@pytest.mark.parametrize("topic", ["topic1", "source.topic1", "source.source.topic1", ""])
def test_other_topics_are_no_cycles(topic: str) -> None:
    assert not is_cycle(default(), topic, "target")


def test_heartbeats_have_cycles_under_the_identity_policy_too() -> None:
    policy = identity()
    assert is_cycle(policy, "target.heartbeats", "target")
    assert is_cycle(policy, "source.target.heartbeats", "target")
    assert not is_cycle(policy, "heartbeats", "target")
    assert not is_cycle(policy, "othersource.heartbeats", "target")


def test_a_policy_without_upstream_names_is_no_cycle() -> None:
    class Opaque(DefaultReplicationPolicy):
        def upstream_topic(self, topic: str) -> str | None:
            return None

    assert not is_cycle(Opaque(), "source.topic1", "target")


def test_a_policy_that_goes_in_circles_ends() -> None:
    class Circle(DefaultReplicationPolicy):
        def topic_source(self, topic: str) -> str | None:
            return "other"

        def upstream_topic(self, topic: str) -> str | None:
            return "b" if topic == "a" else "a"

    assert not is_cycle(Circle(), "a", "target")
    assert Circle().original_topic("a") in ("a", "b")


def test_amazons_sample_policy_is_the_identity() -> None:
    policy = load_policy("com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy", {})
    assert isinstance(policy, IdentityReplicationPolicy)


class Partial:
    """Lacks most of a policy."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return topic


class Demanding(DefaultReplicationPolicy):
    """Cannot be made without arguments."""

    def __init__(self, suffix: str) -> None:
        super().__init__()
        self.suffix = suffix


class Unconfigured(DefaultReplicationPolicy):
    """A whole policy that reads no settings."""

    configure = None  # type: ignore[assignment]


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("acme_policies")
    for policy in (Partial, Demanding, Unconfigured):
        setattr(module, policy.__name__, policy)
    setattr(module, "constant", 1)  # noqa: B010 - a ModuleType has no such attribute for mypy
    monkeypatch.setitem(sys.modules, "acme_policies", module)


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("com.acme.JavaPolicy", "com.acme.JavaPolicy cannot be loaded.*Java classes cannot"),
        ("NoModule", "the name has no module part"),
        ("acme_policies.Missing", "cannot be loaded.*Missing"),
        ("acme_policies.constant", "is not a class"),
        ("acme_policies.Partial", "lacks topic_source, upstream_topic.*derive the class"),
        ("acme_policies.Demanding", "without arguments.*suffix"),
        ("..x", "cannot be loaded"),
    ],
)
def test_policies_that_cannot_be_used_are_explained(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_policy(name, {})


@pytest.mark.usefixtures("acme")
def test_a_policy_need_not_read_settings() -> None:
    assert load_policy("acme_policies.Unconfigured", {}).heartbeats_topic() == "heartbeats"


_ALIAS = st.text("ABCxyz-_0", min_size=1, max_size=5)
_TOPIC = st.text("abc-_0.", min_size=1, max_size=10).filter(lambda name: name.strip("."))


@given(_ALIAS, _TOPIC)
def test_what_was_renamed_is_found_again(alias: str, topic: str) -> None:
    policy = default()
    remote = policy.format_remote_topic(alias, topic)
    assert policy.topic_source(remote) == alias
    assert policy.upstream_topic(remote) == topic
    assert policy.original_topic(remote) == policy.original_topic(topic)
    assert is_cycle(policy, remote, alias)
