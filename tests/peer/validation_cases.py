"""Connector configs, good, bad and odd, that are validated by Connect and by us."""

from __future__ import annotations

from typing import NamedTuple

_CONNECT = "org.apache.kafka.connect"
BYTES = f"{_CONNECT}.converters.ByteArrayConverter"
JSON = f"{_CONNECT}.json.JsonConverter"
TEXT = f"{_CONNECT}.storage.StringConverter"
SIMPLE = f"{_CONNECT}.storage.SimpleHeaderConverter"
TRANSFORMS = f"{_CONNECT}.transforms"
PREDICATES = f"{TRANSFORMS}.predicates"
SOURCE = "MirrorSourceConnector"
CHECKPOINT = "MirrorCheckpointConnector"
HEARTBEAT = "MirrorHeartbeatConnector"

Props = dict[str, str | None]


class Case(NamedTuple):
    """One config on top of the least one; `differs` are the keys on which we differ on purpose."""

    name: str
    props: Props | None = None
    connector: str = SOURCE
    worker: str = "all"
    without: str = ""
    differs: frozenset[str] = frozenset()

    def config(self) -> Props:
        least: Props = {
            "name": "m",
            "connector.class": self.connector,
            "source.cluster.alias": "A",
        }
        merged = least | (self.props or {})
        merged.pop(self.without, None)
        return merged


def _step(alias: str, kind: str, **settings: str | None) -> Props:
    prefix = f"transforms.{alias}"
    named = {f"{prefix}.{key.replace('_', '.')}": value for key, value in settings.items()}
    return {"transforms": alias, f"{prefix}.type": f"{TRANSFORMS}.{kind}", **named}


def _predicate(alias: str, kind: str, **settings: str) -> Props:
    prefix = f"predicates.{alias}"
    named = {f"{prefix}.{key}": value for key, value in settings.items()}
    return {"predicates": alias, f"{prefix}.type": f"{PREDICATES}.{kind}", **named}


_OVERRIDES: Props = {
    "producer.override.acks": "1",
    "producer.override.linger.ms": "10",
    "producer.override.bootstrap.servers": "a:1,b:2",
    "producer.override.no.such.key": "x",
    "producer.override.sasl.jaas.config": "secret",
    "producer.override.security.protocol": "SASL_SSL",
    "consumer.override.group.id": "g",
    "consumer.override.max.poll.records": "5",
    "admin.override.retries": "3",
}

_VALUES = (
    Case("source"),
    Case("checkpoint", connector=CHECKPOINT),
    Case("heartbeat", connector=HEARTBEAT),
    Case("short class name", {"connector.class": "MirrorSource"}),
    Case("no name", without="name"),
    Case("no alias", without="source.cluster.alias"),
    Case("empty name", {"name": ""}),
    Case("blank name", {"name": "  "}),
    Case("name with blanks around", {"name": " x "}),
    Case("name with control characters", {"name": "a\u0007b\u0000"}),
    Case("unknown key", {"no.such.key": "x", "source.cluster.ssl.key.password": "y"}),
    Case("numbers with signs and blanks", {"tasks.max": " +3 ", "offset.lag.max": "-1"}),
    Case("decimals", {"sasl.login.refresh.window.factor": "1"}),
    Case("large number", {"admin.timeout.ms": "9223372036854775807"}),
    Case("too large number", {"offset.lag.max": "-9223372036854775809"}),
    Case("passwords", {"ssl.key.password": "x", "sasl.jaas.config": "a.b required;"}),
    Case("lists", {"topics": " a , b.*", "metric.reporters": "a.b.C", "config.providers": "x,y"}),
    Case("not numbers", {"tasks.max": "x", "replication.factor": "99999999999"}),
    Case("not a boolean", {"enabled": "yes", "refresh.topics.enabled": ""}),
    Case("not a short", {"offset-syncs.topic.replication.factor": "99999"}),
    Case("not a decimal", {"sasl.login.refresh.window.factor": "abc"}),
    Case("out of range", {"tasks.max": "0", "sasl.login.refresh.window.jitter": "0.5"}),
    Case("none of the words", {"errors.tolerance": "ALL", "config.action.reload": "x"}),
    Case("words in any case", {"security.protocol": "sasl_ssl", "transaction.boundary": "POLL"}),
    Case("wrong words", {"security.protocol": "x", "offset-syncs.topic.location": "x"}),
    Case("wrong delivery words", {"exactly.once.support": "x", "transaction.boundary": "x"}),
    Case("negative interval", {"transaction.boundary.interval.ms": "-1"}),
    Case("empty offsets topic", {"offsets.storage.topic": ""}),
    Case("empty list elements", {"topics": "a,,b"}),
    Case("duplicates", {"topics": "a,b,a", "ssl.enabled.protocols": "TLSv1.2,TLSv1.2"}),
    Case("metric names", {"metric.names.formats": "x"}),
    Case("no metric names", {"metric.names.formats": ""}),
    Case("creation groups twice", {"topic.creation.groups": "a,a"}),
    Case("creation groups", {"topic.creation.groups": "a", "topic.creation.a.partitions": "x"}),
    Case("groups", {"groups": "a,,", "refresh.groups.enabled": "x"}, CHECKPOINT),
    Case("heartbeats", {"emit.heartbeats.interval.seconds": "x"}, HEARTBEAT),
    Case("version", {"connector.plugin.version": "4.3.1"}),
    Case("version range", {"connector.plugin.version": "[4,5)"}),
    Case("other version", {"connector.plugin.version": "3.9.1", "tasks.max": "0"}),
)

_NULLS = (
    Case("null number", {"tasks.max": None}),
    Case("null words", {"transaction.boundary": None, "exactly.once.support": None}),
    Case("null lists", {"topics": None, "topic.creation.groups": None, "transforms": None}),
    Case("null interval", {"transaction.boundary.interval.ms": None}),
    Case("null unknown", {"foo": None, "bar": None, "baz": None, "aa": None}),
    Case("null of a step", _step("f", "Filter", negate=None, predicate="p") | {"predicates": "p"}),
    Case("null class of a step", {"transforms": "a", "transforms.a.type": None}),
)

_CONVERTERS = (
    Case("bytes", {"key.converter": BYTES, "value.converter": BYTES, "header.converter": BYTES}),
    Case("short converter names", {"key.converter": "ByteArrayConverter"}),
    Case("shorter converter names", {"value.converter": "ByteArray", "header.converter": "Simple"}),
    Case("default header converter", {"header.converter": SIMPLE}),
    Case("converter version", {"key.converter": BYTES, "key.converter.plugin.version": "4.3.1"}),
    Case("other converter version", {"key.converter": BYTES, "key.converter.plugin.version": "1"}),
    Case("bad converter version", {"key.converter": BYTES, "key.converter.plugin.version": "["}),
    Case("version of no converter", {"key.converter.plugin.version": "1.0"}),
    Case("unknown converter", {"key.converter": "com.acme.X"}),
    Case("empty converter", {"key.converter": "", "value.converter": "  "}),
    Case("no converter", {"key.converter": f"{_CONNECT}.mirror.{SOURCE}"}),
    Case("header converter for keys", {"key.converter": SIMPLE}),
    Case("step for headers", {"header.converter": f"{TRANSFORMS}.Filter"}),
    Case("abstract converter", {"key.converter": f"{_CONNECT}.storage.Converter"}),
    Case("converter settings", {"key.converter": BYTES, "key.converter.converter.type": "zz"}),
)

_STEPS = (
    Case("route", _step("r", "RegexRouter", regex="x(.*)", replacement="$1")),
    Case("route without settings", _step("r", "RegexRouter")),
    Case("route by a wrong pattern", _step("r", "RegexRouter", regex="(", replacement="")),
    Case("route by time", _step("t", "TimestampRouter", timestamp_format="yyyy")),
    Case("insert header", _step("i", "InsertHeader", header="h", value_literal="1")),
    Case("insert header without value", _step("i", "InsertHeader", header="")),
    Case("drop headers", _step("d", "DropHeaders", headers="a,b")),
    Case("drop no headers", _step("d", "DropHeaders")),
    Case("drop empty headers", _step("d", "DropHeaders", headers="")),
    Case("filter", {"transforms": "f", "transforms.f.type": "Filter"}),
    Case(
        "filter by a predicate",
        _step("f", "Filter", predicate="p") | _predicate("p", "RecordIsTombstone"),
    ),
    Case("negate nothing", _step("f", "Filter", negate="true")),
    Case(
        "negate wrongly",
        _step("f", "Filter", negate="x", predicate="p") | _predicate("p", "RecordIsTombstone"),
    ),
    Case("step twice", _step("f", "Filter") | {"transforms": "f,f"}),
    Case("empty alias", _step("f", "Filter") | {"transforms": "f,"}),
    Case("step without class", {"transforms": "a", "predicates": "b"}),
    Case("unknown step", {"transforms": "a", "transforms.a.type": "com.acme.T"}),
    Case("converter as a step", {"transforms": "a", "transforms.a.type": BYTES}),
    Case("abstract step", _step("a", "Cast")),
    Case(
        "two unknown steps",
        {"transforms": "a,b", "transforms.a.type": "x", "transforms.b.type": ""},
    ),
    Case("version of a step", _step("f", "Filter", plugin_version="latest")),
    Case("other version of a step", _step("f", "Filter", plugin_version="[5,)")),
    Case("bad version of a step", _step("f", "Filter", plugin_version="[")),
    Case("predicate by name", _predicate("p", "TopicNameMatches", pattern="a.*")),
    Case("predicate by an empty name", _predicate("p", "TopicNameMatches", pattern="")),
    Case("predicate by a wrong name", _predicate("p", "TopicNameMatches", pattern="[")),
    Case("predicate by no name", _predicate("p", "TopicNameMatches")),
    Case("predicate by header", _predicate("p", "HasHeaderKey", name="")),
    Case("predicate by no header", _predicate("p", "HasHeaderKey")),
    Case("step as a predicate", {"predicates": "p", "predicates.p.type": f"{TRANSFORMS}.Filter"}),
)

_CLIENTS = (
    Case("overrides", _OVERRIDES),
    Case("overrides under Principal", _OVERRIDES, worker="principal"),
    Case("overrides under Allowlist", _OVERRIDES, worker="allowlist"),
    Case("overrides with a topic for offsets", _OVERRIDES | {"offsets.storage.topic": "t"}),
    Case("overrides with topic creation", _OVERRIDES | {"topic.creation.default.partitions": "1"}),
    Case("override nobody checks", {"producer.override.acks": "17"}),
    Case(
        "exactly once required",
        {"exactly.once.support": "required", "consumer.isolation.level": "read_committed"},
    ),
    Case(
        "exactly once required and had",
        {"exactly.once.support": "REQUIRED", "source.consumer.isolation.level": "read_committed"},
        worker="principal",
    ),
    Case(
        "exactly once required of dirty reads",
        {"exactly.once.support": "Required", "consumer.isolation.level": "read_uncommitted"},
        worker="principal",
    ),
    Case("boundaries of the connector", {"transaction.boundary": "connector"}),
    Case("boundaries of heartbeats", {"transaction.boundary": "CONNECTOR"}, HEARTBEAT),
    Case(
        "checkpoints off and disabled",
        {"emit.checkpoints.enabled": "false", "enabled": "false"},
        CHECKPOINT,
    ),
)

SAME: tuple[Case, ...] = (*_VALUES, *_NULLS, *_CONVERTERS, *_STEPS, *_CLIENTS)
"""Connect and we say the same."""

OURS: tuple[Case, ...] = (
    # Converters that would not copy.
    Case("json keys", {"key.converter": JSON}, differs=frozenset({"key.converter"})),
    Case(
        "json values with wrong settings",
        {
            "value.converter": JSON,
            "value.converter.schemas.enable": "x",
            "value.converter.decimal.format": "x",
        },
        differs=frozenset({"value.converter"}),
    ),
    Case("text headers", {"header.converter": TEXT}, differs=frozenset({"header.converter"})),
    # A predicate that does not exist fails a task of Connect when it starts.
    Case(
        "unknown predicate",
        _step("f", "Filter", predicate="zz"),
        differs=frozenset({"transforms.f.predicate"}),
    ),
    # Null in place of a value that the connector defines escapes Connect.
    Case(
        "null values",
        {"enabled": None, "key.converter": None},
        differs=frozenset({"enabled", "key.converter"}),
    ),
    # Java classes.
    Case(
        "filter class",
        {"topic.filter.class": "com.acme.X"},
        differs=frozenset({"topic.filter.class"}),
    ),
    Case(
        "amazon's policy",
        {"replication.policy.class": "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy"},
        differs=frozenset({"replication.policy.class"}),
    ),
    Case("login class", {"sasl.login.class": "x.y.Z"}, differs=frozenset({"sasl.login.class"})),
    # Patterns, which Connect looks at when the connector starts.
    Case("wrong pattern", {"topics": "*"}, differs=frozenset({"topics"})),
    # References that no provider answers, which Connect takes as text.
    Case(
        "open reference",
        {"topics.exclude": "${env:NO_SUCH_VARIABLE}"},
        differs=frozenset({"topics.exclude"}),
    ),
    # The same problem in our own words.
    Case(
        "syncs off",
        {"emit.offset-syncs.enabled": "false", "offset-syncs.topic.location": "target"},
        differs=frozenset({"emit.offset-syncs.enabled"}),
    ),
    Case(
        "checkpoints off",
        {"emit.offset-syncs.enabled": "false", "emit.checkpoints.enabled": "false"},
        CHECKPOINT,
        differs=frozenset({"emit.offset-syncs.enabled", "emit.checkpoints.enabled"}),
    ),
    Case(
        "dirty reads",
        {"exactly.once.support": "required", "consumer.isolation.level": "read_uncommitted"},
        differs=frozenset({"exactly.once.support"}),
    ),
    Case(
        "exactly once required of checkpoints",
        {"exactly.once.support": "required"},
        CHECKPOINT,
        differs=frozenset({"exactly.once.support"}),
    ),
    # Committed data is what we read unless told otherwise.
    Case(
        "exactly once required without more",
        {"exactly.once.support": "required"},
        worker="principal",
        differs=frozenset({"exactly.once.support"}),
    ),
    # Restarts and former names are ours; Connect does not know these keys.
    Case("former name", {"topics.blacklist": "zz"}, differs=frozenset({"topics.exclude"})),
)
"""We say something else about just these keys."""
