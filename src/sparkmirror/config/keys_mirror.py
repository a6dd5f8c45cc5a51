"""The keys of MirrorMaker 2 itself: those its three connectors share and those each has alone."""

from __future__ import annotations

from dataclasses import replace

from sparkmirror.config.keys import Importance, Key, KeyType
from sparkmirror.config.query import QUERY_KEYS
from sparkmirror.config.rate_limits import RATE_LIMIT_KEYS
from sparkmirror.config.target_partitions import TARGET_PARTITIONS, target_partitions_problem
from sparkmirror.config.validators import Between, Items, OneOf

_JAVA = "org.apache.kafka.connect.mirror"
DEFAULT_POLICY = f"{_JAVA}.DefaultReplicationPolicy"
DEFAULT_TOPIC_FILTER = f"{_JAVA}.DefaultTopicFilter"
DEFAULT_GROUP_FILTER = f"{_JAVA}.DefaultGroupFilter"
DEFAULT_CONFIG_PROPERTY_FILTER = f"{_JAVA}.DefaultConfigPropertyFilter"
DEFAULT_ADMIN = "org.apache.kafka.clients.admin.ForwardingAdmin"

_CONFIG_PROPERTIES_EXCLUDE = ",".join(
    (
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "message.timestamp.difference.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.after.max.ms",
        "message.timestamp.type",
        "unclean.leader.election.enable",
        "min.insync.replicas",
    )
)


def _key(name: str, key_type: KeyType, default: str | None, doc: str) -> Key:
    return Key(name=name, type=key_type, default=default, doc=doc, display_name=name)


def _flag(name: str, default: str, doc: str) -> Key:
    return _key(name, KeyType.BOOLEAN, default, doc)


def _long(name: str, default: str, doc: str) -> Key:
    return _key(name, KeyType.LONG, default, doc)


def _seconds(name: str, default: str, doc: str) -> Key:
    return _long(f"{name}.interval.seconds", default, doc)


def _class(name: str, default: str, doc: str) -> Key:
    return _key(name, KeyType.CLASS, default, doc)


def _replicas(topic: str) -> Key:
    return _key(
        f"{topic}.topic.replication.factor",
        KeyType.SHORT,
        "3",
        f"Replication factor of the {topic} topic; -1: the brokers' default.",
    )


def _patterns(name: str, default: str, doc: str, former: str = "") -> Key:
    return Key(
        name=name,
        type=KeyType.LIST,
        default=default,
        importance=Importance.HIGH,
        doc=doc,
        display_name=name,
        validator=Items(),
        aliases=(former,) if former else (),
    )


_ALIAS_KEYS = (
    Key(
        name="source.cluster.alias",
        type=KeyType.STRING,
        required=True,
        importance=Importance.HIGH,
        doc="What the source cluster is called in topic names, offsets and metrics.",
        display_name="source.cluster.alias",
    ),
    Key(
        name="target.cluster.alias",
        type=KeyType.STRING,
        default="target",
        importance=Importance.HIGH,
        doc="What the target cluster is called in topic names, cycle detection and metrics.",
        display_name="target.cluster.alias",
    ),
)

PREFLIGHT_KEY = replace(
    _flag(
        "preflight.enabled",
        "true",
        "Ours. Whether what would go wrong is looked for, and told in the log, when the connector starts.",
    ),
    hidden=True,
)

SHARED_KEYS: tuple[Key, ...] = (
    _flag("enabled", "true", "Whether this flow copies anything. Heartbeats are sent regardless."),
    *_ALIAS_KEYS,
    _long("admin.timeout.ms", "60000", "Bound on each administrative step, in milliseconds."),
    _class("replication.policy.class", DEFAULT_POLICY, "How remote topics are named."),
    _key(
        "replication.policy.separator",
        KeyType.STRING,
        ".",
        "What stands between the source alias and the topic name.",
    ),
    _flag(
        "replication.policy.internal.topic.separator.enabled",
        "true",
        "Whether the names of internal topics use that separator too, instead of a dot.",
    ),
    _class("forwarding.admin.class", DEFAULT_ADMIN, "Java class that creates and alters topics."),
    replace(
        _key(
            "metric.reporters",
            KeyType.LIST,
            "org.apache.kafka.common.metrics.JmxReporter",
            "Java classes that report metrics.",
        ),
        validator=Items(),
    ),
    PREFLIGHT_KEY,
)

CONFIG_PROVIDERS_KEY = replace(
    _key("config.providers", KeyType.LIST, "", "Names of the providers of values."),
    validator=Items(),
)

_TOPICS_KEYS = (
    _patterns("topics", ".*", "Topics to copy: names or Java regular expressions."),
    _patterns(
        "topics.exclude",
        r"mm2.*\.internal,.*\.replica,__.*",
        "Topics not to copy, whatever `topics` says.",
        "topics.blacklist",
    ),
)
_TOPIC_FILTER_KEY = _class("topic.filter.class", DEFAULT_TOPIC_FILTER, "Which topics are copied.")
_POLL_TIMEOUT_KEY = _long("consumer.poll.timeout.ms", "1000", "Longest wait for source records.")
_LOCATION_KEY = replace(
    _key(
        "offset-syncs.topic.location",
        KeyType.STRING,
        "source",
        "Cluster on which the offset-syncs topic lives.",
    ),
    validator=OneOf(("source", "target")),
)
_EMIT_SYNCS_KEY = _flag(
    "emit.offset-syncs.enabled", "true", "Whether offset syncs are written; checkpoints need them."
)
_METRIC_NAMES_KEY = replace(
    _key("metric.names.formats", KeyType.LIST, "legacy", "Deprecated. How metrics are named."),
    validator=Items(("legacy", "new"), may_be_empty=False),
)

TOPIC_SYNC_KEYS: tuple[Key, ...] = tuple(
    replace(key, hidden=True)  # MirrorMaker 2 does not have them
    for key in (
        _flag(
            "sync.topic.configs.dry.run",
            "false",
            "Ours. Whether differences of topic properties are only told in the log, and nothing is altered.",
        ),
        _flag(
            "sync.topic.acls.dry.run",
            "false",
            "Ours. Whether differences of ACLs are only told in the log, and nothing is altered.",
        ),
        _flag(
            "sync.topic.acls.delete.enabled",
            "false",
            "Ours. Whether an ACL that this flow has copied is removed when it is removed at the source.",
        ),
        _flag(
            "sync.topic.acls.prefixed.enabled",
            "false",
            "Ours. Whether ACLs of prefixes of topic names are copied too.",
        ),
        _flag(
            "sync.group.acls.enabled",
            "false",
            "Ours. Whether ACLs of consumer groups are copied too, under the same group names.",
        ),
        _flag(
            "sync.topic.deletes.enabled",
            "false",
            "Ours. Whether a remote topic is deleted some time after its source topic was deleted.",
        ),
        replace(
            _long(
                "sync.topic.deletes.grace.ms",
                "3600000",
                "Ours. For how long the source topic must have been missing before the remote topic is deleted.",
            ),
            validator=Between(low=0),
        ),
    )
)

TARGET_PARTITIONS_KEY = replace(
    _key(
        TARGET_PARTITIONS,
        KeyType.LIST,
        "",
        "Ours. Numbers of partitions of remote topics that are not to have as many as their sources: pattern:number, the first "
        "that matches counts, or one number for all. Where the numbers differ, records are placed by their keys.",
    ),
    validator=target_partitions_problem,
    hidden=True,  # MirrorMaker 2 does not have it
)

AT_LEAST_ONCE = "at-least-once"
DELIVERY_KEY = replace(
    _key(
        "mirror.delivery",
        KeyType.STRING,
        "exactly-once",
        "Ours. exactly-once, or at-least-once for targets that have no idempotent writes (no InitProducerId, or producer ids are "
        "not kept): after a failure some records may be repeated there, and none is lost.",
    ),
    validator=OneOf(("exactly-once", AT_LEAST_ONCE)),
    hidden=True,  # MirrorMaker 2 does not have it
)

SOURCE_ONLY_KEYS: tuple[Key, ...] = (
    *_TOPICS_KEYS,
    _patterns(
        "config.properties.exclude",
        _CONFIG_PROPERTIES_EXCLUDE,
        "Topic properties that are never copied: names or Java regular expressions.",
        "config.properties.blacklist",
    ),
    _TOPIC_FILTER_KEY,
    _class(
        "config.property.filter.class",
        DEFAULT_CONFIG_PROPERTY_FILTER,
        "Which topic properties are copied.",
    ),
    _POLL_TIMEOUT_KEY,
    _flag("refresh.topics.enabled", "true", "Whether to look for new topics and partitions."),
    replace(
        # An intended difference: ten minutes without a new topic's data is users' common complaint.
        _seconds("refresh.topics", "30", "How often to look for them."),
        mm2_default="600",
    ),
    _flag("sync.topic.configs.enabled", "true", "Whether topic properties are copied."),
    _seconds("sync.topic.configs", "600", "How often topic properties are copied."),
    _flag("sync.topic.acls.enabled", "true", "Whether topic ACLs are copied."),
    _seconds("sync.topic.acls", "600", "How often topic ACLs are copied."),
    *TOPIC_SYNC_KEYS,
    _key(
        "replication.factor",
        KeyType.INT,
        "2",
        "Replication factor of new remote topics; -1: the brokers' default.",
    ),
    TARGET_PARTITIONS_KEY,
    *QUERY_KEYS,
    *RATE_LIMIT_KEYS,
    DELIVERY_KEY,
    _replicas("offset-syncs"),
    _long("offset.lag.max", "100", "How many records an offset sync may lag; 0: one per record."),
    _LOCATION_KEY,
    _EMIT_SYNCS_KEY,
    _flag(
        "heartbeats.replication.enabled",
        "true",
        "Whether heartbeats topics are copied whatever the topic filter says.",
    ),
    _METRIC_NAMES_KEY,
    replace(
        _key(
            "use.defaults.from",
            KeyType.STRING,
            "target",
            "Whose default a topic property gets that is not set at the source.",
        ),
        hidden=True,
    ),
)

CHECKPOINT_ONLY_KEYS: tuple[Key, ...] = (
    _POLL_TIMEOUT_KEY,
    _patterns("groups", ".*", "Consumer groups to follow: names or Java regular expressions."),
    _patterns(
        "groups.exclude",
        "console-consumer-.*,connect-.*,__.*",
        "Consumer groups not to follow, whatever `groups` says.",
        "groups.blacklist",
    ),
    _class("group.filter.class", DEFAULT_GROUP_FILTER, "Which groups are followed."),
    _flag("refresh.groups.enabled", "true", "Whether to look for new groups."),
    _seconds("refresh.groups", "600", "How often to look for them."),
    _flag("emit.checkpoints.enabled", "true", "Whether checkpoints are written."),
    replace(
        # An intended difference: what a consumer repeats after a fail-over is what is not written.
        _seconds("emit.checkpoints", "5", "How often checkpoints are written."),
        mm2_default="60",
    ),
    _flag("sync.group.offsets.enabled", "false", "Whether empty target groups are moved along."),
    _seconds("sync.group.offsets", "60", "How often they are moved."),
    _replicas("checkpoints"),
    _LOCATION_KEY,
    _TOPIC_FILTER_KEY,
    _METRIC_NAMES_KEY,
    *(replace(key, hidden=True) for key in (*_TOPICS_KEYS, _EMIT_SYNCS_KEY)),
    replace(
        TARGET_PARTITIONS_KEY,
        doc="Ours. As the source connector of the same flow has it: groups of those topics are translated by time.",
    ),
)

HEARTBEAT_ONLY_KEYS: tuple[Key, ...] = (
    _flag("emit.heartbeats.enabled", "true", "Whether heartbeats are written."),
    _seconds("emit.heartbeats", "1", "How often a heartbeat is written."),
    _replicas("heartbeats"),
)
