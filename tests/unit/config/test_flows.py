"""Dedicated mode: which pairs run, and what reaches their workers and connectors."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.flows import ConnectorKind, MirrorMakerConfig, SourceAndTarget
from sparkmirror.errors import ConfigError

AB = SourceAndTarget("A", "B")
BA = SourceAndTarget("B", "A")
BASE = {
    "clusters": "A, B",
    "A.bootstrap.servers": "a:9092",
    "B.bootstrap.servers": "b:9092",
    "A->B.enabled": "true",
}
THREE = {
    "clusters": "a,b,c",
    "a.bootstrap.servers": "a:1",
    "b.bootstrap.servers": "b:1",
    "c.bootstrap.servers": "c:1",
}


def config(*layers: dict[str, str], environment: dict[str, str] | None = None) -> MirrorMakerConfig:
    merged: dict[str, str] = {}
    for layer in layers:
        merged |= layer
    return MirrorMakerConfig(merged, environment or {})


def source(*layers: dict[str, str], pair: SourceAndTarget = AB) -> dict[str, str]:
    return config(BASE, *layers).connector_config(pair, "source")


def names(pairs: list[SourceAndTarget]) -> set[str]:
    return {str(pair) for pair in pairs}


# Which pairs run


def test_clusters_keep_their_order() -> None:
    assert config(BASE, {"clusters": "B,A"}).clusters == ("B", "A")


def test_the_way_back_of_a_flow_sends_heartbeats_only() -> None:
    flows = config(BASE)
    assert flows.pairs() == [AB, BA]
    assert flows.replicating_pairs() == [AB]


def test_every_pair_of_three_clusters_sends_heartbeats() -> None:
    flows = config(THREE, {"a->b.enabled": "true"})
    assert names(flows.pairs()) == {f"{s}->{t}" for s, t in permutations("abc", 2)}
    assert names(flows.replicating_pairs()) == {"a->b"}


def test_heartbeats_off_leaves_the_enabled_flows() -> None:
    off = {"emit.heartbeats.enabled": "false"}
    enabled = {f"{flow}.enabled": "true" for flow in ("a->b", "a->c", "b->c")}
    assert names(config(THREE, off, enabled).pairs()) == {"a->b", "a->c", "b->c"}


def test_heartbeats_of_single_flows_can_be_off() -> None:
    off = {"a->c.emit.heartbeats.enabled": "false", "c->b.emit.heartbeats.enabled": "false"}
    pairs = names(config(THREE, off, {"a->b.enabled": "true"}).pairs())
    assert pairs == {"a->b", "b->a", "b->c", "c->a"}


def test_heartbeats_of_a_single_flow_can_be_on() -> None:
    flows = config(
        THREE, {"emit.heartbeats.enabled": "false", "a->b.emit.heartbeats.enabled": "true"}
    )
    assert names(flows.pairs()) == {"a->b"}
    assert flows.replicating_pairs() == []


def test_clusters_option_keeps_pairs_into_those_targets() -> None:
    flows = config(THREE, {"a->b.enabled": "true"})
    assert names(flows.pairs(["b"])) == {"a->b", "c->b"}
    assert names(flows.replicating_pairs(["a", "c"])) == set()


def test_a_top_level_enabled_reaches_every_pair_with_a_worker() -> None:
    flows = config(BASE, {"enabled": "true", "A->B.enabled": "false"})
    assert flows.replicating_pairs() == [BA]
    assert flows.connector_config(BA, "source")["enabled"] == "true"


# What reaches the connectors


def test_a_connector_knows_its_flow() -> None:
    expected = {
        "name": "MirrorSourceConnector",
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": "a:9092",
        "target.cluster.bootstrap.servers": "b:9092",
        "enabled": "true",
    }
    assert expected.items() <= source().items()
    assert config(BASE).connector_config(BA, "heartbeat")["enabled"] == "false"


@pytest.mark.parametrize(
    ("connector", "name"),
    [
        ("source", "MirrorSourceConnector"),
        ("checkpoint", "MirrorCheckpointConnector"),
        ("heartbeat", "MirrorHeartbeatConnector"),
    ],
)
def test_the_three_connectors_differ_in_name_and_class_only(
    connector: ConnectorKind, name: str
) -> None:
    found = config(BASE).connector_config(AB, connector)
    assert found.pop("name") == name
    assert found.pop("connector.class").endswith(f".{name}")
    expected = source()
    assert found == {k: v for k, v in expected.items() if k not in ("name", "connector.class")}


def test_flow_keys_win_over_top_level_ones_and_pass_whatever_they_are() -> None:
    found = source({"tasks.max": "2", "A->B.tasks.max": "7", "A->B.anything.else": "x"})
    assert (found["tasks.max"], found["anything.else"]) == ("7", "x")
    assert source({"tasks.max": "2", "B->A.tasks.max": "7"})["tasks.max"] == "2"


def test_top_level_keys_pass_if_a_connector_defines_them() -> None:
    passing = {
        "topics": "t",
        "groups": "g",
        "emit.heartbeats.interval.seconds": "5",
        "replication.policy.custom": "c",
        "config.providers.x.param.y": "z",
        "use.defaults.from": "source",
        "topics.blacklist": "old",
    }
    dropped = {
        "consumer.x": "1",
        "offset.flush.interval.ms": "1",
        "group.id": "g",
        "exactly.once.support": "required",
        "no.such.key": "1",
        "spark.master": "local[2]",
        "mirror.epoch.ms": "1",
    }
    found = source(passing, dropped)
    assert passing.items() <= found.items()
    assert not dropped.keys() & found.keys()


def test_topic_filters_of_a_flow_pass() -> None:
    filters = {"topics": "topic1, topic2", "topics.exclude": "topic3", "groups.exclude": "g"}
    found = source({f"A->B.{name}": value for name, value in filters.items()})
    assert filters.items() <= found.items()


def test_cluster_keys_go_to_the_side_on_which_the_cluster_is() -> None:
    keys = {"A.consumer.x": "1", "A.admin.y": "2", "A.some.thing": "3"}
    out, back = source(keys), source(keys, pair=BA)
    assert out["source.consumer.x"] == back["target.consumer.x"] == "1"
    assert out["source.admin.y"] == back["target.admin.y"] == "2"
    assert out["source.cluster.some.thing"] == back["target.cluster.some.thing"] == "3"


def test_security_of_a_producer_beats_that_of_a_cluster_beats_the_common_one() -> None:
    found = config(
        BASE,
        {
            "ssl.key.password": "common",
            "B.ssl.key.password": "cluster",
            "B.producer.ssl.key.password": "producer",
            "ssl.client.auth": "required",
        },
    )
    b = found.cluster_properties("B")
    assert b["ssl.key.password"] == b["consumer.ssl.key.password"] == "cluster"
    assert b["admin.ssl.key.password"] == "cluster"
    assert b["producer.ssl.key.password"] == "producer"
    assert found.cluster_properties("A")["producer.ssl.key.password"] == "common"
    assert "ssl.client.auth" not in b, "a setting of the REST server, not of clients"
    assert found.connector_config(AB, "source")["ssl.key.password"] == "common"


def test_every_kind_of_client_knows_the_address_of_its_cluster() -> None:
    found = source()
    for side, address in (("source", "a:9092"), ("target", "b:9092")):
        for kind in ("producer", "consumer", "admin"):
            assert found[f"{side}.{kind}.bootstrap.servers"] == address


def test_aliases_may_have_dots() -> None:
    flows = config(
        {
            "clusters": "us.west,us",
            "us.west.bootstrap.servers": "w:1",
            "us.bootstrap.servers": "u:1",
            "us->us.west.enabled": "true",
            "us->us.west.tasks.max": "3",
        }
    )
    pair = SourceAndTarget("us", "us.west")
    assert flows.replicating_pairs() == [pair]
    assert flows.connector_config(pair, "source")["tasks.max"] == "3"


# What reaches the worker


def test_a_worker_lives_on_the_target_with_topics_named_after_the_source() -> None:
    bytes_converter = "org.apache.kafka.connect.converters.ByteArrayConverter"
    expected = {
        "bootstrap.servers": "b:9092",
        "producer.bootstrap.servers": "b:9092",
        "client.id": "A->B",
        "group.id": "A-mm2",
        "offset.storage.topic": "mm2-offsets.A.internal",
        "status.storage.topic": "mm2-status.A.internal",
        "config.storage.topic": "mm2-configs.A.internal",
        "key.converter": bytes_converter,
        "value.converter": bytes_converter,
        "header.converter": bytes_converter,
    }
    assert expected.items() <= config(BASE).worker_config(AB).items()


def test_worker_keys_come_from_the_target_cluster_and_some_from_the_top() -> None:
    found = config(
        BASE,
        {
            "B.offset.flush.interval.ms": "500",
            "B.group.id": "mine",
            "B.offset.storage.topic": "cluster-level",
            "offset.storage.topic": "top-level",
            "config.storage.replication.factor": "1",
            "tasks.max": "4",
            "worker.sync.timeout.ms": "9",
            "replication.policy.separator": "_",
            "A.offset.flush.interval.ms": "1",
            "A->B.offset.flush.timeout.ms": "1",
            "offset.flush.timeout.ms": "1",
        },
    ).worker_config(AB)
    assert found["offset.flush.interval.ms"] == "500"
    assert found["group.id"] == "mine"
    assert found["offset.storage.topic"] == "top-level"
    assert found["config.storage.replication.factor"] == "1"
    assert (found["tasks.max"], found["worker.sync.timeout.ms"]) == ("4", "9")
    assert found["replication.policy.separator"] == "_"
    assert "offset.flush.timeout.ms" not in found


def test_references_are_resolved_in_worker_and_connector_configs() -> None:
    declared = {
        "config.providers": "fake",
        "config.providers.fake.class": "org.apache.kafka.common.config.provider."
        "EnvVarConfigProvider",
    }
    flows = config(
        BASE,
        declared,
        {
            "B.ssl.key.password": "${fake:SECRET}",
            "A->B.topics": "${fake:TOPICS}",
            "A->B.enabled": "${fake:ON}",
            "spark.executor.memory": "${fake:MEMORY}",
        },
        environment={"SECRET": "s", "TOPICS": "t", "ON": "true", "MEMORY": "1g"},
    )
    assert flows.worker_config(AB)["ssl.key.password"] == "s"
    assert flows.worker_config(AB)["config.providers"] == "fake"
    connector = flows.connector_config(AB, "source")
    assert connector["target.producer.ssl.key.password"] == "s"
    assert connector["topics"] == "t"
    assert flows.replicating_pairs() == [AB]
    assert flows.spark == {"spark.executor.memory": "1g"}


def test_a_missing_secret_is_named_with_its_key() -> None:
    flows = config(BASE, {"A.sasl.jaas.config": "${env:NOT_SET}"})
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config refers to .*NOT_SET"):
        flows.pairs()


def test_own_keys_are_kept_apart() -> None:
    flows = config(BASE, {"spark.master": "local[4]", "mirror.epoch.ms": "1000"})
    assert flows.spark == {"spark.master": "local[4]"}
    assert flows.mirror == {"mirror.epoch.ms": "1000"}
    assert flows.internal_rest is False
    assert config(BASE, {"dedicated.mode.enable.internal.rest": "true"}).internal_rest is True


# What is refused


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"clusters": ""}, "clusters is empty"),
        ({"clusters": "A,A"}, "names A twice"),
        ({"clusters": "A,,B"}, "cannot be part of a topic name"),
        ({"clusters": "A,B B"}, "'B B', which cannot be part"),
        ({"A->C.enabled": "true"}, r"A->C\.enabled names the cluster C.*\(A, B\)"),
        ({"clusters": "primary,backup", "primry->backup.x": "1"}, "Did you mean primary"),
        ({"C->B.topics": "x"}, "names the cluster C"),
        ({"A->A.enabled": "true"}, "a flow of A to itself"),
        ({"A->B": "true"}, "A->B sets nothing"),
        ({"A": "-> B.enabled = true"}, "has a blank in its flow"),
        ({"A->": "B.enabled = true"}, "has a blank in its flow"),
        ({"A": "-> B.ssl.key.password = hush"}, "'A -> B.ssl.key.password…' has a blank"),
        ({"A->B.enabled": "yes"}, r"A->B\.enabled is 'yes', which is neither true nor false"),
        ({"emit.heartbeats.enabled": "1"}, r"emit\.heartbeats\.enabled is '1'"),
        ({"A->B.enabled": "false"}, r"No flow is enabled.*Set A->B\.enabled=true"),
    ],
)
def test_files_that_cannot_be_meant_are_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(BASE, changes)


def test_a_file_without_clusters_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"clusters is missing.*clusters=A,B"):
        config({"A->B.enabled": "true"})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"A->B.tasks.max": "many"}, "A->B: Invalid value many for configuration tasks.max"),
        ({"emit.checkpoints.enabled": "maybe"}, "emit.checkpoints.enabled"),
        ({"emit.heartbeats.interval.seconds": "1.5"}, "Not a number of type LONG"),
        ({"A.bootstrap.servers": ""}, r"A->B: A\.bootstrap\.servers is missing"),
    ],
)
def test_wrong_values_of_a_flow_are_found_with_its_pair(
    changes: dict[str, str], message: str
) -> None:
    flows = config(BASE, changes)
    with pytest.raises(ConfigError, match=message):
        flows.pairs()


def test_all_wrong_values_come_at_once() -> None:
    flows = config(BASE, {"A->B.tasks.max": "x", "A->B.offset.lag.max": "y"})
    with pytest.raises(ConfigError, match=r"(?s)2 settings are wrong.*tasks\.max.*offset\.lag"):
        flows.pairs()


def test_a_cluster_that_no_flow_of_this_process_needs_may_lack_its_address() -> None:
    flows = config(THREE, {"a->b.enabled": "true", "c.bootstrap.servers": ""})
    assert names(flows.pairs(["b"])) == {"a->b", "c->b"}
    with pytest.raises(ConfigError, match=r"c\.bootstrap\.servers is missing"):
        flows.pairs()


def test_an_address_may_come_with_the_flow() -> None:
    flows = config(
        {
            "clusters": "A,B",
            "A->B.enabled": "true",
            "A->B.source.cluster.bootstrap.servers": "a:1",
            "B.bootstrap.servers": "b:1",
        }
    )
    assert flows.replicating_pairs(["B"]) == [AB]


def test_clusters_option_must_name_known_clusters() -> None:
    flows = config(THREE, {"clusters": "alpha,beta", "alpha->beta.enabled": "true"})
    with pytest.raises(ConfigError, match=r"--clusters names alpa.*Did you mean alpha\?"):
        flows.pairs(["alpa"])


def test_clusters_option_without_any_flow_is_refused() -> None:
    flows = config(BASE, {"emit.heartbeats.enabled": "false"})
    with pytest.raises(ConfigError, match="No flow goes into A"):
        flows.pairs(["A"])


# What reaches nothing


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("consumer.fetch.min.bytes", "A.consumer.fetch.min.bytes"),
        ("offset.flush.interval.ms", "Write B.offset.flush.interval.ms"),
        ("group.id", "Write B.group.id"),
        ("exactly.once.support", "Write A->B.exactly.once.support"),
        ("use.incremental.alter.configs", "Kafka 4.0 has removed it"),
        ("AA.bootstrap.servers", "AA is not among clusters"),
        ("replication.facter", "Did you mean replication.factor"),
        ("A->B.emit.heartbeats", "no connector knows it. Did you mean emit.heartbeats.enabled"),
        ("A->B.offset.flush.interval.ms", "Write B.offset.flush.interval.ms"),
        ("A->B.spark.master", "Write it without the flow"),
        ("A->B.add.source.alias.to.metrics", "Kafka 4.0 has removed it"),
    ],
)
def test_keys_that_reach_nothing_are_told_with_the_reason(key: str, reason: str) -> None:
    (line,) = config(BASE, {key: "1"}).unused()
    assert line.startswith(f"{key} is ignored: ")
    assert reason in line


def test_keys_that_reach_something_are_not_told() -> None:
    used = [
        "topics",
        "tasks.max",
        "ssl.key.password",
        "listeners",
        "config.providers.f.class",
        "spark.x",
        "mirror.y",
        "offset.storage.topic",
        "replication.policy.z",
        "use.defaults.from",
        "A.anything",
        "topics.blacklist",
        "A->B.consumer.x",
        "A->B.source.admin.y",
        "A->B.exactly.once.support",
        "A->B.topics",
        "A->B.transforms",
        "A->B.producer.override.x",
        "A->B.replication.policy.mine",
        "dedicated.mode.enable.internal.rest",
    ]
    assert config(BASE, dict.fromkeys(used, "false")).unused() == []


_FLAG = st.sampled_from(["true", "false", None])
_KEY_LEVELS = st.fixed_dictionaries(
    {
        f"{s}->{t}.{k}": _FLAG
        for s, t in ("AB", "BA")
        for k in ("enabled", "emit.heartbeats.enabled")
    }
    | {"emit.heartbeats.enabled": _FLAG}
)


@given(_KEY_LEVELS)
def test_a_pair_has_a_worker_iff_it_replicates_or_sends_heartbeats(
    flags: dict[str, str | None],
) -> None:
    def on(name: str, default: str) -> bool:
        return (flags[name] or default) == "true"

    common = flags["emit.heartbeats.enabled"] or "true"
    expected = [
        pair
        for pair in (AB, BA)
        if on(f"{pair}.enabled", "false") or on(f"{pair}.emit.heartbeats.enabled", common)
    ]
    chosen = {name: value for name, value in flags.items() if value is not None}
    try:
        found = config({k: v for k, v in BASE.items() if k != "A->B.enabled"}, chosen).pairs()
    except ConfigError as error:
        found = []
        assert "No flow" in error.message
        assert not any(flags[f"{pair}.enabled"] == "true" for pair in (AB, BA))
        expected = []
    assert found == expected
