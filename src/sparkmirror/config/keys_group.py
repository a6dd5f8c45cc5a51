"""The keys of workers that form a group: membership, the topics they share, how they sign requests."""

from __future__ import annotations

from sparkmirror.config.keys import Importance, Key, KeyType, plain_key, required_key
from sparkmirror.config.validators import Between, OneOf, PositiveOr

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW


def _milliseconds(name: str, default: str, importance: Importance, doc: str) -> Key:
    return plain_key(name, KeyType.INT, default, importance, doc)


def _storage_topic(prefix: str, what: str) -> Key:
    return required_key(
        f"{prefix}.storage.topic", KeyType.STRING, HIGH, f"Compacted topic with {what}."
    )


def _storage_partitions(prefix: str, default: str) -> Key:
    return plain_key(
        f"{prefix}.storage.partitions",
        KeyType.INT,
        default,
        LOW,
        "Partitions of that topic when it is created; -1: the brokers' default.",
        PositiveOr("Number of partitions must be positive, or -1 to use the broker's default"),
    )


def _storage_replicas(prefix: str) -> Key:
    return plain_key(
        f"{prefix}.storage.replication.factor",
        KeyType.SHORT,
        "3",
        LOW,
        "Replication factor of that topic when it is created; -1: the brokers' default.",
        PositiveOr(
            "Replication factor must be positive and not larger than the number of brokers in the "
            "Kafka cluster, or -1 to use the broker's default"
        ),
    )


_MEMBERSHIP_KEYS = (
    required_key(
        "group.id", KeyType.STRING, HIGH, "Name of the Connect cluster that the worker belongs to."
    ),
    _milliseconds(
        "session.timeout.ms", "10000", HIGH, "After so long without a heartbeat a worker is out."
    ),
    _milliseconds("rebalance.timeout.ms", "60000", HIGH, "How long a rebalance waits for workers."),
    _milliseconds(
        "heartbeat.interval.ms", "3000", HIGH, "How often the worker shows that it is alive."
    ),
    plain_key(
        "exactly.once.source.support",
        KeyType.STRING,
        "disabled",
        HIGH,
        "Accepted in all its values: records are copied exactly once whatever it says, unless mirror.delivery allows more.",
        OneOf(("DISABLED", "ENABLED", "PREPARING"), ignore_case=True),
    ),
    _milliseconds(
        "worker.sync.timeout.ms", "3000", MEDIUM, "How long a worker may take to catch up."
    ),
    _milliseconds(
        "worker.unsync.backoff.ms", "300000", MEDIUM, "How long a worker that did not stays out."
    ),
    plain_key(
        "connect.protocol",
        KeyType.STRING,
        "sessioned",
        LOW,
        "How workers share out the work: eager, compatible or sessioned.",
        OneOf(("eager", "compatible", "sessioned"), ignore_case=True),
    ),
    plain_key(
        "scheduled.rebalance.max.delay.ms",
        KeyType.INT,
        "300000",
        LOW,
        "How long the work of a lost worker waits for its return.",
        Between(0, 2147483647),
    ),
)

_SESSION_KEY_KEYS = (
    plain_key(
        "inter.worker.key.ttl.ms",
        KeyType.INT,
        "3600000",
        LOW,
        "How long the key lives with which workers sign requests to each other.",
        Between(0, 2147483647),
    ),
    plain_key(
        "inter.worker.key.generation.algorithm",
        KeyType.STRING,
        "HmacSHA256",
        LOW,
        "Algorithm for which that key is made.",
    ),
    plain_key(
        "inter.worker.key.size",
        KeyType.INT,
        None,
        LOW,
        "Size of that key in bits; unset: what fits the algorithm.",
    ),
    plain_key(
        "inter.worker.signature.algorithm",
        KeyType.STRING,
        "HmacSHA256",
        LOW,
        "Algorithm with which requests are signed.",
    ),
    plain_key(
        "inter.worker.verification.algorithms",
        KeyType.LIST,
        "HmacSHA256",
        LOW,
        "Algorithms that are accepted in requests.",
    ),
)

_STORAGE_KEYS = (
    _storage_topic("offset", "the positions of connectors"),
    _storage_partitions("offset", "25"),
    _storage_replicas("offset"),
    _storage_topic("config", "the configs of connectors (one partition)"),
    _storage_replicas("config"),
    _storage_topic("status", "the states of connectors and tasks"),
    _storage_partitions("status", "5"),
    _storage_replicas("status"),
)

GROUP_KEYS: tuple[Key, ...] = (*_MEMBERSHIP_KEYS, *_STORAGE_KEYS, *_SESSION_KEY_KEYS)
