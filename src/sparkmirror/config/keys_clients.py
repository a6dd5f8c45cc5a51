"""The keys of Kafka 4.3's clients, of which connectors may override some: producer, consumer, admin.

Most of them mean nothing to a copy of batches as they are; all are known, so that validation lists
them as Connect does. Connect does not validate their values, it only gives them their type.
"""

from __future__ import annotations

from sparkmirror.config.keys import Importance, Key, KeyType, plain_key, required_key
from sparkmirror.config.keys_security import PROTOCOL_KEY, SECURITY_KEYS

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_JMX = "org.apache.kafka.common.metrics.JmxReporter"
# Two classes, as Connect shows them.
_ASSIGNORS = ",".join(
    f"class org.apache.kafka.clients.consumer.{name}"
    for name in ("RangeAssignor", "CooperativeStickyAssignor")
)


def _text(name: str, default: str | None, importance: Importance, doc: str) -> Key:
    return plain_key(name, KeyType.STRING, default, importance, doc)


def _int(name: str, default: str | None, importance: Importance, doc: str) -> Key:
    return plain_key(name, KeyType.INT, default, importance, doc)


def _long(name: str, default: str | None, importance: Importance, doc: str) -> Key:
    return plain_key(name, KeyType.LONG, default, importance, doc)


def _flag(name: str, default: str | None, importance: Importance, doc: str) -> Key:
    return plain_key(name, KeyType.BOOLEAN, default, importance, doc)


def _list(name: str, default: str | None, importance: Importance, doc: str) -> Key:
    return plain_key(name, KeyType.LIST, default, importance, doc)


def _class(name: str, default: str | None, importance: Importance, doc: str) -> Key:
    return plain_key(name, KeyType.CLASS, default, importance, doc)


_COMMON_KEYS = (
    _text("client.dns.lookup", "use_all_dns_ips", MEDIUM, "How addresses behind a name are used."),
    _list("config.providers", "", LOW, "Names of the providers of values."),
    _long("metadata.max.age.ms", "300000", LOW, "How often metadata is asked for at least."),
    _long(
        "metadata.recovery.rebootstrap.trigger.ms",
        "300000",
        LOW,
        "Time without metadata until a new begin.",
    ),
    _text("metadata.recovery.strategy", "rebootstrap", LOW, "What to do when no broker answers."),
    _list("metric.reporters", _JMX, LOW, "Java classes that report metrics."),
    _int("metrics.num.samples", "2", LOW, "How many samples a metric keeps."),
    _text("metrics.recording.level", "INFO", LOW, "How much detail metrics have."),
    _long("metrics.sample.window.ms", "30000", LOW, "How long one sample of a metric lasts."),
    _long("reconnect.backoff.max.ms", "1000", LOW, "Longest wait before connecting again."),
    _long("reconnect.backoff.ms", "50", LOW, "First wait before connecting again."),
    _int("request.timeout.ms", "30000", MEDIUM, "How long to wait for an answer."),
    _long("retry.backoff.max.ms", "1000", LOW, "Longest wait before sending again."),
    _long("retry.backoff.ms", "100", LOW, "First wait before sending again."),
    _text("security.providers", None, LOW, "Java security providers."),
    _int(
        "send.buffer.bytes", "131072", MEDIUM, "Size of the socket's send buffer; -1: the system's."
    ),
    _long(
        "socket.connection.setup.timeout.max.ms", "30000", MEDIUM, "Longest wait for a connection."
    ),
    _long("socket.connection.setup.timeout.ms", "10000", MEDIUM, "First wait for a connection."),
)

_PRODUCER_ONLY_KEYS = (
    _text("acks", "all", LOW, "How many replicas must have a record before it counts as sent."),
    _int("batch.size", "16384", MEDIUM, "Bytes to collect in a batch."),
    required_key("bootstrap.servers", KeyType.LIST, HIGH, "Brokers to ask first: host:port."),
    _long("buffer.memory", "33554432", HIGH, "Bytes that may wait to be sent."),
    _text("client.id", "", MEDIUM, "Name of the client in broker logs and quotas."),
    _int("compression.gzip.level", "-1", MEDIUM, "Level of gzip compression."),
    _int("compression.lz4.level", "9", MEDIUM, "Level of lz4 compression."),
    _text("compression.type", "none", HIGH, "How batches are compressed."),
    _int("compression.zstd.level", "3", MEDIUM, "Level of zstd compression."),
    _long(
        "connections.max.idle.ms",
        "540000",
        MEDIUM,
        "After so long without use a connection is closed.",
    ),
    _int("delivery.timeout.ms", "120000", MEDIUM, "How long a record may take to be acknowledged."),
    _flag("enable.idempotence", "true", LOW, "Whether the brokers refuse what they have already."),
    _flag(
        "enable.metrics.push", "true", LOW, "Whether the brokers may ask for the client's metrics."
    ),
    _list("interceptor.classes", "", LOW, "Java classes that see records on their way."),
    required_key("key.serializer", KeyType.CLASS, HIGH, "Java class that writes keys."),
    _long("linger.ms", "5", MEDIUM, "How long to wait for a batch to fill."),
    _long("max.block.ms", "60000", MEDIUM, "How long sending may block."),
    _int(
        "max.in.flight.requests.per.connection",
        "5",
        LOW,
        "Requests that may be unanswered at once.",
    ),
    _int("max.request.size", "1048576", MEDIUM, "Most bytes of one request."),
    _long("metadata.max.idle.ms", "300000", LOW, "How long metadata of an unused topic is kept."),
    _flag(
        "partitioner.adaptive.partitioning.enable", "true", LOW, "Whether faster brokers get more."
    ),
    _long(
        "partitioner.availability.timeout.ms", "0", LOW, "When a partition counts as not available."
    ),
    _class("partitioner.class", None, MEDIUM, "Java class that chooses partitions."),
    _flag(
        "partitioner.ignore.keys", "false", MEDIUM, "Whether keys do not decide about partitions."
    ),
    _int(
        "receive.buffer.bytes",
        "32768",
        MEDIUM,
        "Size of the socket's receive buffer; -1: the system's.",
    ),
    _int("retries", "2147483647", HIGH, "How often a failed request is sent again."),
    _int("transaction.timeout.ms", "60000", LOW, "How long a transaction may stay open."),
    _flag(
        "transaction.two.phase.commit.enable",
        "false",
        LOW,
        "Whether somebody else ends the transactions.",
    ),
    _text("transactional.id", None, LOW, "Name under which transactions are made."),
    required_key("value.serializer", KeyType.CLASS, HIGH, "Java class that writes values."),
)

_CONSUMER_ONLY_KEYS = (
    _flag("allow.auto.create.topics", "true", MEDIUM, "Whether asking for a topic may create it."),
    _int("auto.commit.interval.ms", "5000", LOW, "How often offsets are committed by themselves."),
    _text(
        "auto.offset.reset",
        "latest",
        MEDIUM,
        "Where to begin when there is no position: earliest or latest.",
    ),
    required_key("bootstrap.servers", KeyType.LIST, HIGH, "Brokers to ask first: host:port."),
    _flag("check.crcs", "true", LOW, "Whether checksums of what is read are checked."),
    _text("client.id", "", LOW, "Name of the client in broker logs and quotas."),
    _text("client.rack", "", LOW, "Rack of the client, to read from the nearest replica."),
    _long(
        "connections.max.idle.ms",
        "540000",
        MEDIUM,
        "After so long without use a connection is closed.",
    ),
    _int(
        "default.api.timeout.ms", "60000", MEDIUM, "How long one call may take with all its tries."
    ),
    _flag("enable.auto.commit", "true", MEDIUM, "Whether offsets are committed by themselves."),
    _flag(
        "enable.metrics.push", "true", LOW, "Whether the brokers may ask for the client's metrics."
    ),
    _flag(
        "exclude.internal.topics",
        "true",
        MEDIUM,
        "Whether a pattern leaves Kafka's own topics out.",
    ),
    _int("fetch.max.bytes", "52428800", MEDIUM, "Most bytes of one fetch."),
    _int("fetch.max.wait.ms", "500", LOW, "How long a broker waits for fetch.min.bytes."),
    _int("fetch.min.bytes", "1", HIGH, "Least bytes of one fetch."),
    _text("group.id", None, HIGH, "The consumer group."),
    _text("group.instance.id", None, MEDIUM, "Name of a static member of the group."),
    _text(
        "group.protocol",
        "classic",
        HIGH,
        "How the group shares its partitions: classic or consumer.",
    ),
    _text("group.remote.assignor", None, MEDIUM, "The assignor on the broker."),
    _int("heartbeat.interval.ms", "3000", HIGH, "How often a member shows that it is alive."),
    _list("interceptor.classes", "", LOW, "Java classes that see records on their way."),
    _text("isolation.level", "read_uncommitted", MEDIUM, "Whether uncommitted records are read."),
    required_key("key.deserializer", KeyType.CLASS, HIGH, "Java class that reads keys."),
    _int("max.partition.fetch.bytes", "1048576", HIGH, "Most bytes of one partition in a fetch."),
    _int("max.poll.interval.ms", "300000", MEDIUM, "Longest time between two polls of a member."),
    _int("max.poll.records", "500", MEDIUM, "Most records of one poll."),
    _list(
        "partition.assignment.strategy",
        _ASSIGNORS,
        MEDIUM,
        "Java classes that share out partitions.",
    ),
    _int(
        "receive.buffer.bytes",
        "65536",
        MEDIUM,
        "Size of the socket's receive buffer; -1: the system's.",
    ),
    _int("session.timeout.ms", "45000", HIGH, "After so long without a heartbeat a member is out."),
    _text("share.acknowledgement.mode", "implicit", MEDIUM, "How a share consumer acknowledges."),
    _text("share.acquire.mode", "BATCH_OPTIMIZED", MEDIUM, "How a share consumer takes records."),
    required_key("value.deserializer", KeyType.CLASS, HIGH, "Java class that reads values."),
)

_ADMIN_ONLY_KEYS = (
    _list("bootstrap.controllers", "", HIGH, "Controllers to ask instead of brokers: host:port."),
    _list("bootstrap.servers", "", HIGH, "Brokers to ask first: host:port."),
    _text("client.id", "", MEDIUM, "Name of the client in broker logs and quotas."),
    _long(
        "connections.max.idle.ms",
        "300000",
        MEDIUM,
        "After so long without use a connection is closed.",
    ),
    _int(
        "default.api.timeout.ms", "60000", MEDIUM, "How long one call may take with all its tries."
    ),
    _flag(
        "enable.metrics.push", "false", LOW, "Whether the brokers may ask for the client's metrics."
    ),
    _int(
        "receive.buffer.bytes",
        "65536",
        MEDIUM,
        "Size of the socket's receive buffer; -1: the system's.",
    ),
    _int("retries", "2147483647", LOW, "How often a failed request is sent again."),
)

_SHARED_KEYS = (*_COMMON_KEYS, PROTOCOL_KEY, *SECURITY_KEYS)

PRODUCER_KEYS: tuple[Key, ...] = (*_PRODUCER_ONLY_KEYS, *_SHARED_KEYS)
CONSUMER_KEYS: tuple[Key, ...] = (*_CONSUMER_ONLY_KEYS, *_SHARED_KEYS)
ADMIN_KEYS: tuple[Key, ...] = (*_ADMIN_ONLY_KEYS, *_SHARED_KEYS)
