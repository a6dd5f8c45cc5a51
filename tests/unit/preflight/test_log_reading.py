"""Errors that MirrorMaker 2's users cannot interpret: lines of its log, as Kafka 4.3.1 and brokers write them."""

from __future__ import annotations

import pytest

from sparkmirror.preflight.findings import Level
from sparkmirror.preflight.known_errors import KNOWN
from sparkmirror.preflight.log_reading import explain, log_report, recognise

_LINES = [
    (
        "[2026-01-01 10:00:00,000] WARN [Producer clientId=A->B] Error while fetching metadata with correlation id 12 : "
        "{A.orders=UNKNOWN_TOPIC_OR_PARTITION} (org.apache.kafka.clients.NetworkClient:1255)",
        "unknown-topic-or-partition",
        "A.orders",
    ),
    (
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this topic-partition.",
        "unknown-topic-or-partition",
        "leader is being elected",
    ),
    (
        "WARN [AdminClient] Error while fetching metadata with correlation id 3 : {t=LEADER_NOT_AVAILABLE}",
        "leader-not-available",
        "partition of t",
    ),
    (
        "org.apache.kafka.connect.errors.ConnectException: Failed to find any class that implements Connector and which name "
        "matches org.example.MirrorSource, available connectors are: PluginDesc{klass=class org.apache…}",
        "connector-class-not-found",
        "org.example.MirrorSource",
    ),
    (
        "sparkmirror: connector.class=org.x.Y is not a connector that runs here. Use one of …",
        "connector-class-not-found",
        "org.x.Y",
    ),
    (
        "java.lang.ClassNotFoundException: com.example.MyPolicy",
        "class-not-found",
        "com.example.MyPolicy",
    ),
    (
        "ERROR WorkerSourceTask{id=MirrorSourceConnector-0} Failed to flush, timed out while waiting for producer to flush "
        "outstanding 1204 messages (org.apache.kafka.connect.runtime.WorkerSourceTask:510)",
        "flush-timeout",
        "offset.flush.timeout.ms",
    ),
    (
        "ERROR WorkerSourceTask{id=x-0} Timed out waiting to flush offsets to storage; will try again on next flush interval "
        "with latest offsets",
        "flush-timeout",
        "not acknowledged",
    ),
    (
        "ERROR WorkerSourceTask{id=x-0} Failed to commit offsets (org.apache.kafka.connect.runtime.SourceTaskOffset)",
        "offset-commit",
        "offsets topic",
    ),
    (
        "ERROR WorkerSourceTask{id=x-0} Failed to flush offsets to storage: java.util.concurrent.ExecutionException",
        "offset-commit",
        "offsets topic",
    ),
    (
        "ERROR Error while loading log dir /var/lib/kafka/data: java.io.IOException: Permission denied",
        "log-directory",
        "/var/lib/kafka/data",
    ),
    (
        "java.nio.file.AccessDeniedException: /opt/kafka/logs/connect.log",
        "log-directory",
        "/opt/kafka/logs/connect.log",
    ),
    (
        "java.nio.file.FileSystemException: /data/kafka/meta.properties: Read-only file system",
        "log-directory",
        "/data/kafka/meta.properties",
    ),
    (
        "ERROR [main] MetaPropertiesEnsemble: Error while reading meta.properties file /data/meta.properties",
        "log-directory",
        "/data/meta.properties",
    ),
    (
        "mkdir: cannot create directory '/opt/kafka/bin/../logs': Permission denied",
        "log-directory",
        "/opt/kafka/bin/../logs",
    ),
    (
        "org.apache.kafka.common.errors.KafkaStorageException: Disk error when trying to access log file on the disk.",
        "log-directory",
        "offline",
    ),
    (
        "org.apache.kafka.common.errors.TimeoutException: Topic A.orders not present in metadata after 60000 ms.",
        "topic-not-in-metadata",
        "A.orders",
    ),
    (
        "WARN Connection to node 3 (kafka-3.internal/10.0.0.3:9092) could not be established. Node may not be available.",
        "unreachable",
        "kafka-3.internal/10.0.0.3:9092",
    ),
    (
        "org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics: [orders]",
        "topic-authorization",
        "orders",
    ),
    (
        "org.apache.kafka.common.errors.GroupAuthorizationException: Not authorized to access group: shop",
        "group-authorization",
        "shop",
    ),
    (
        "org.apache.kafka.common.errors.InvalidReplicationFactorException: Unable to replicate the partition 3 time(s): The "
        "target replication factor of 3 cannot be reached because only 1 broker(s) are registered.",
        "replication-factor",
        "more replicas",
    ),
    (
        "ERROR Scheduler for MirrorSourceConnector timed out running task: creating upstream offset-syncs topic",
        "scheduler-timeout",
        "creating upstream offset-syncs topic",
    ),
]


@pytest.mark.parametrize(("line", "name", "said"), _LINES)
def test_each_is_recognised(line: str, name: str, said: str) -> None:
    found = recognise(line)
    assert found is not None
    assert found[0].name == name
    (finding,) = explain([line])
    assert said in finding.message
    assert finding.remedy
    assert "{" not in finding.message + finding.remedy.replace("{offset,config,status}", "")


def test_a_log_is_told_once_for_each_kind() -> None:
    line = _LINES[0][0]
    other = line.replace("A.orders", "A.audit")
    report = log_report("x", ["INFO all is well", line, line, other, *[""] * 3])
    (section,) = report.sections
    assert len(section.findings) == 2
    assert "(line 2, 2 times)" in section.findings[0].message
    assert "(line 4)" in section.findings[1].message
    assert report.exit_code == 0, "warnings only"


def test_a_log_without_errors() -> None:
    report = log_report("x", ["INFO Kafka version: 4.3.1", "INFO started"])
    assert report.level is Level.OK


def test_every_group_of_a_text_is_in_its_pattern() -> None:
    for known in KNOWN:
        words = dict.fromkeys(known.pattern.groupindex, "x")
        assert set(known.by) <= words.keys()
        known.cause.format(**words)
        known.remedy.format(**words)
