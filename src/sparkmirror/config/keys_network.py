"""The keys by which a worker's own clients talk to brokers: buffers, time-outs, waits."""

from __future__ import annotations

from sparkmirror.config.keys import Importance, Key, KeyType, plain_key
from sparkmirror.config.validators import Between, OneOf

MEDIUM, LOW = Importance.MEDIUM, Importance.LOW


def _bytes(name: str, default: str, doc: str) -> Key:
    return plain_key(name, KeyType.INT, default, MEDIUM, doc, Between(-1))


def _wait(name: str, default: str, doc: str) -> Key:
    return plain_key(name, KeyType.LONG, default, LOW, doc, Between(0))


NETWORK_KEYS: tuple[Key, ...] = (
    plain_key(
        "client.dns.lookup",
        KeyType.STRING,
        "use_all_dns_ips",
        MEDIUM,
        "How addresses behind a name are used.",
        OneOf(("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only")),
    ),
    plain_key("client.id", KeyType.STRING, "", LOW, "Name of the worker in broker logs."),
    _bytes("send.buffer.bytes", "131072", "Size of the send buffer; -1: the system's."),
    _bytes("receive.buffer.bytes", "32768", "Size of the receive buffer; -1: the system's."),
    plain_key(
        "request.timeout.ms",
        KeyType.INT,
        "40000",
        MEDIUM,
        "How long to wait for an answer.",
        Between(0),
    ),
    plain_key(
        "connections.max.idle.ms",
        KeyType.LONG,
        "540000",
        MEDIUM,
        "After so long without use a connection is closed.",
    ),
    _wait("metadata.max.age.ms", "300000", "How often metadata is asked for at least."),
    plain_key(
        "metadata.recovery.strategy",
        KeyType.STRING,
        "rebootstrap",
        LOW,
        "What to do when no known broker answers: none or rebootstrap.",
        OneOf(("REBOOTSTRAP", "NONE"), ignore_case=True),
    ),
    _wait(
        "metadata.recovery.rebootstrap.trigger.ms",
        "300000",
        "After so long without metadata the client begins anew.",
    ),
    _wait("reconnect.backoff.ms", "50", "First wait before connecting again."),
    _wait("reconnect.backoff.max.ms", "1000", "Longest wait before connecting again."),
    _wait("socket.connection.setup.timeout.ms", "10000", "First wait for a connection."),
    _wait("socket.connection.setup.timeout.max.ms", "30000", "Longest wait for a connection."),
    _wait("retry.backoff.ms", "100", "First wait before asking again."),
    _wait("retry.backoff.max.ms", "1000", "Longest wait before asking again."),
)
