"""The keys of a Connect worker: those of every worker, and all of a distributed and a standalone one."""

from __future__ import annotations

from dataclasses import replace

from sparkmirror.config.keys import Importance, Key, KeyType, plain_key, required_key
from sparkmirror.config.keys_group import GROUP_KEYS
from sparkmirror.config.keys_network import NETWORK_KEYS
from sparkmirror.config.keys_rest import REST_KEYS
from sparkmirror.config.keys_security import PROTOCOL_KEY, SASL_KEYS, SSL_KEYS
from sparkmirror.config.permits import PERMIT_KEYS
from sparkmirror.config.validators import Between, Items, OneOf

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
SIMPLE_HEADERS = "org.apache.kafka.connect.storage.SimpleHeaderConverter"


def _flag(name: str, default: str, doc: str) -> Key:
    return plain_key(name, KeyType.BOOLEAN, default, LOW, doc)


_CONVERTER_KEYS = (
    required_key(
        "key.converter", KeyType.CLASS, HIGH, "Converter of keys, unless a connector has its own."
    ),
    required_key(
        "value.converter",
        KeyType.CLASS,
        HIGH,
        "Converter of values, unless a connector has its own.",
    ),
    plain_key(
        "header.converter",
        KeyType.CLASS,
        SIMPLE_HEADERS,
        LOW,
        "Converter of headers. Headers are copied as bytes with this default too.",
    ),
    *(
        plain_key(
            f"{part}.converter.plugin.version",
            KeyType.STRING,
            None,
            LOW,
            "Version of that converter. Accepted; has no effect.",
        )
        for part in ("key", "value", "header")
    ),
)

_PLUGIN_KEYS = (
    plain_key(
        "plugin.path",
        KeyType.LIST,
        None,
        LOW,
        "Directories with Java plugins. Accepted; nothing is loaded from them.",
    ),
    plain_key(
        "plugin.discovery",
        KeyType.STRING,
        "hybrid_warn",
        LOW,
        "How Java plugins are found. Accepted; has no effect.",
        OneOf(("ONLY_SCAN", "SERVICE_LOAD", "HYBRID_WARN", "HYBRID_FAIL"), ignore_case=True),
    ),
    plain_key(
        "config.providers",
        KeyType.LIST,
        "",
        LOW,
        "Names of the providers whose references may stand in worker and connector configs.",
        Items(),
    ),
    plain_key(
        "connector.client.config.override.policy",
        KeyType.STRING,
        "All",
        MEDIUM,
        "Which client settings connectors may override: All, None, Principal or Allowlist.",
    ),
    plain_key(
        "connector.client.config.override.allowlist",
        KeyType.LIST,
        "",
        MEDIUM,
        "The client settings that the policy Allowlist allows.",
    ),
)

_METRICS_KEYS = (
    plain_key(
        "metrics.sample.window.ms",
        KeyType.LONG,
        "30000",
        LOW,
        "How long one sample of a metric lasts.",
        Between(0),
    ),
    plain_key(
        "metrics.num.samples",
        KeyType.INT,
        "2",
        LOW,
        "How many samples a metric keeps.",
        Between(1),
    ),
    plain_key(
        "metrics.recording.level",
        KeyType.STRING,
        "INFO",
        LOW,
        "How much detail metrics have.",
        OneOf(("INFO", "DEBUG")),
    ),
    plain_key(
        "metric.reporters",
        KeyType.LIST,
        "org.apache.kafka.common.metrics.JmxReporter",
        LOW,
        "Java classes that report metrics. Accepted; have no effect.",
        Items(),
    ),
)

_TIMING_KEYS = (
    plain_key(
        "task.shutdown.graceful.timeout.ms",
        KeyType.LONG,
        "5000",
        LOW,
        "How long all tasks together may take to stop.",
    ),
    replace(
        # An intended difference: a start has to find out what was copied since the last flush.
        plain_key(
            "offset.flush.interval.ms",
            KeyType.LONG,
            "1000",
            LOW,
            "How often positions are written to the offsets topic.",
        ),
        mm2_default="60000",
    ),
    plain_key(
        "offset.flush.timeout.ms",
        KeyType.LONG,
        "5000",
        LOW,
        "How long one such write may take.",
    ),
)

# Automatic restarts are ours: Connect leaves what has failed to the user.
RESTART_KEYS: tuple[Key, ...] = (
    _flag(
        "errors.restart.enabled",
        "true",
        "Whether a connector or task that has failed is started again by itself.",
    ),
    plain_key(
        "errors.restart.max.attempts",
        KeyType.INT,
        "-1",
        LOW,
        "How often in a row; -1: without end.",
        Between(-1),
    ),
    plain_key(
        "errors.restart.backoff.ms",
        KeyType.LONG,
        "1000",
        LOW,
        "Wait before the first restart; each further one waits twice as long.",
        Between(1),
    ),
    plain_key(
        "errors.restart.backoff.max.ms",
        KeyType.LONG,
        "300000",
        LOW,
        "Longest wait between two restarts.",
        Between(1),
    ),
    plain_key(
        "errors.restart.reset.ms",
        KeyType.LONG,
        "600000",
        LOW,
        "After running this long, attempts are counted anew.",
        Between(0),
    ),
)

COMMON_WORKER_KEYS: tuple[Key, ...] = (
    required_key(
        "bootstrap.servers", KeyType.LIST, HIGH, "Brokers of the worker's own cluster: host:port."
    ),
    *_CONVERTER_KEYS,
    *_TIMING_KEYS,
    *_PLUGIN_KEYS,
    *_METRICS_KEYS,
    _flag("topic.creation.enable", "true", "Whether connectors may say how topics are created."),
    _flag("topic.tracking.enable", "true", "Whether it is kept which topics a connector uses."),
    _flag("topic.tracking.allow.reset", "true", "Whether users may reset that set."),
    *REST_KEYS,
    *RESTART_KEYS,
    *PERMIT_KEYS,
    *NETWORK_KEYS,
    PROTOCOL_KEY,
    *SSL_KEYS,
    *SASL_KEYS,
)

DISTRIBUTED_KEYS: tuple[Key, ...] = (*COMMON_WORKER_KEYS, *GROUP_KEYS)

STANDALONE_KEYS: tuple[Key, ...] = (
    *COMMON_WORKER_KEYS,
    required_key(
        "offset.storage.file.filename",
        KeyType.STRING,
        HIGH,
        "File with the positions of connectors.",
    ),
)
