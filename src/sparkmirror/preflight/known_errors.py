"""Errors in logs that say little, of MirrorMaker 2, Connect, brokers and ours: what each means and what to do.

The table is data: a pattern for a line, what is wrong, and the remedy; `{name}` stands for a group of the pattern. The first
entry that fits a line is taken, so special cases stand before general ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sparkmirror.preflight.findings import Level


@dataclass(frozen=True, slots=True)
class KnownError:
    """One kind of line. Lines that differ in the groups named in `by` are told apart; the others are counted together."""

    name: str
    pattern: re.Pattern[str]
    cause: str
    remedy: str
    by: tuple[str, ...] = ()
    level: Level = Level.ERROR


def _known(
    name: str,
    pattern: str,
    cause: str,
    remedy: str,
    by: tuple[str, ...] = (),
    level: Level = Level.ERROR,
) -> KnownError:
    return KnownError(name, re.compile(pattern), cause, remedy, by, level)


# Until 3.9 and from 4.0 on.
_METADATA = (
    r"(?:Error while fetching metadata|The metadata response from the cluster reported a recoverable issue)"
    r" with correlation id \d+ : "
)

KNOWN: tuple[KnownError, ...] = (
    _known(
        "connector-class-not-found",
        r"Failed to find any class that implements Connector and which name matches (?P<class>[^\s,]+)",
        "The worker has no connector of the class {class}: it is misspelt, or on a Java worker connect-mirror is not on "
        "plugin.path.",
        "Use org.apache.kafka.connect.mirror.MirrorSourceConnector, MirrorCheckpointConnector or "
        "MirrorHeartbeatConnector, which sparkmirror has built in; on a Java worker put the connect-mirror jars on "
        "plugin.path or into libs.",
        ("class",),
    ),
    _known(
        "connector-class-not-found",
        r"connector\.class=(?P<class>\S+) is not a connector that runs here",
        "There is no connector of the class {class} here.",
        "Use MirrorSourceConnector, MirrorCheckpointConnector or MirrorHeartbeatConnector.",
        ("class",),
    ),
    _known(
        "class-not-found",
        r"(?:ClassNotFoundException: |"
        r"Failed to find any class that implements \S+ and which name matches )(?P<class>[\w.$]+)|"
        r"Class (?P<other>[\w.$]+) could not be found",
        "A Java class is missing: {class}{other} (a converter, policy, filter or login module).",
        "Correct the name, or put its jar on plugin.path. sparkmirror loads no Java classes: it knows those of Kafka by "
        "name, and a policy of your own is a Python class.",
        ("class", "other"),
    ),
    _known(
        "unknown-topic-or-partition",
        _METADATA + r"\{(?P<topic>[^=}]+)=UNKNOWN_TOPIC_OR_PARTITION",
        "Topic {topic} was asked for and the broker does not have it: it is not created yet (the connector creates "
        "remote topics at its next look), its leader is being elected, or the client talks to another cluster than it "
        "should because of a wrong advertised listener.",
        "A few such lines after a start are normal. If they go on: create the topic, or give the principal Create; and "
        "look with `sparkmirror check FILE` whether every broker can be reached at the address it advertises.",
        ("topic",),
        Level.WARNING,
    ),
    _known(
        "leader-not-available",
        _METADATA + r"\{(?P<topic>[^=}]+)=(?:LEADER_NOT_AVAILABLE|"
        r"LISTENER_NOT_FOUND)",
        "A partition of {topic} has no leader that clients can see: it is being elected, or its broker has no listener "
        "of this name.",
        "It passes within seconds after a topic was created. Else check that the brokers are up, and that each has the "
        "listener which this client uses in advertised.listeners.",
        ("topic",),
        Level.WARNING,
    ),
    _known(
        "topic-authorization",
        r"(?:" + _METADATA + r"\{(?P<topic>[^=}]+)=TOPIC_AUTHORIZATION_FAILED|"
        r"Not authorized to access topics: \[(?P<topics>[^\]]*)\])",
        "The principal of the client may not do that with topic {topic}{topics}.",
        "Give it the ACLs of docs/acls.md; `sparkmirror check FILE` names the ones that are missing.",
        ("topic", "topics"),
    ),
    _known(
        "unknown-topic-or-partition",
        r"(?:UNKNOWN_TOPIC_OR_PARTITION|UnknownTopicOrPartitionException|This server does not host this topic-partition)",
        "A topic or partition was asked for that the broker does not have: it is not created yet, its leader is being "
        "elected, it was deleted, or a wrong advertised listener leads to another cluster.",
        "See whether the topic exists on the cluster in question; `sparkmirror check FILE` tells which advertised "
        "address cannot be reached.",
        level=Level.WARNING,
    ),
    _known(
        "topic-not-in-metadata",
        r"Topic (?P<topic>\S+) not present in metadata after \d+ ms",
        "A producer waited in vain for topic {topic}: it does not exist, may not be described, or its brokers cannot be "
        "reached at the addresses they advertise.",
        "Create the topic or allow its creation; check advertised.listeners with `sparkmirror check FILE`.",
        ("topic",),
    ),
    _known(
        "log-directory",
        r"(?:Log directory|log directory|log\.dirs|log dir) ?(?P<directory>/[^\s,;]*)?.*"
        r"(?:not writable|is not a readable log directory|has failed|Permission denied|Read-only file system|AccessDenied)",
        "A broker cannot write its log directory {directory}: wrong owner or permissions, a read-only or full disk.",
        "Give the user that runs the broker write access (chown, fsGroup in Kubernetes), or set log.dirs to another "
        "directory; see that the disk is not full.",
        ("directory",),
    ),
    _known(
        "log-directory",
        r"(?:(?:AccessDenied|FileNotFound|FileSystem)Exception: |Error while reading meta\.properties file )"
        r"(?P<directory>/[^\s:]+)",
        "A Java process cannot use {directory}: often the directory of its log files (LOG_DIR, kafka.logs.dir) or of "
        "a broker's data.",
        "Give its user write access to the directory, or set LOG_DIR (log files) or log.dirs (data) to one that it may "
        "write.",
        ("directory",),
    ),
    _known(
        "log-directory",
        r"(?:Unable to create|Cannot create|could not create|cannot create).{0,20}director(?:y|"
        r"ies).{0,5}(?P<directory>/[^\s'\"]+)|"
        r"mkdir: cannot create directory .(?P<made>/[^'\"\u2019]+)",
        "The directory for log files cannot be created: {directory}{made}.",
        "Give the user write access to its parent, or set LOG_DIR to a directory that it may write.",
        ("directory", "made"),
    ),
    _known(
        "log-directory",
        r"KafkaStorageException|Shutdown broker because (?:all|none of the|the metadata)|Error while loading log dir|"
        r"Disk error when",
        "A broker's log directory has failed, so its partitions are offline: the disk is full, broken, or not writable.",
        "Look at the broker's own log for the first error, mend the disk, and restart the broker.",
    ),
    _known(
        "flush-timeout",
        r"(?:Failed to flush, timed out while waiting for producer to flush outstanding(?: (?P<count>\d+) messages)?|"
        r"Timed out waiting to flush offsets to storage|Timed out while waiting for previous offset flush|"
        r"Timed out waiting for previous flush)",
        "The records sent so far were not acknowledged within offset.flush.timeout.ms, so positions could not be "
        "written. Nothing is lost, but after a crash MirrorMaker 2 copies those records again. The target or the network "
        "is too slow for the load, or a partition of the target has too few replicas in sync.",
        "Check the target's brokers (NOT_ENOUGH_REPLICAS, disk, quota). For Java raise offset.flush.timeout.ms, or lower "
        "producer.override.batch.size and buffer.memory. sparkmirror does not wait for a flush: positions follow "
        "acknowledgements.",
        level=Level.WARNING,
    ),
    _known(
        "offset-commit",
        r"(?:Failed to commit offsets|Commit of offsets (?:timed out|threw an unexpected exception)|"
        r"Failed to flush offsets to storage|Flush of offsets threw an unexpected exception|"
        r"impossible to commit offsets under namespace)",
        "The positions of a task could not be written to the worker's offsets topic: it is not writable (ACL Write, too "
        "few replicas in sync), its broker is away, or the write took longer than offset.flush.timeout.ms. Copying goes "
        "on; after a crash records since the last commit are copied again.",
        "Check that the topic of offset.storage.topic exists, is compacted, has its replicas in sync, and that the "
        "principal may write to it.",
    ),
    _known(
        "group-authorization",
        r"Not authorized to access group: (?P<group>\S+)|GROUP_AUTHORIZATION_FAILED",
        "The principal may not do that with group {group}.",
        "Workers need Read on their group, checkpoints Describe on the source's groups and Read on the target's.",
        ("group",),
    ),
    _known(
        "authorization",
        r"(?P<code>(?:TOPIC|CLUSTER|TRANSACTIONAL_ID)_AUTHORIZATION_FAILED|(?:Topic|Cluster|"
        r"TransactionalId)AuthorizationException)",
        "An operation was refused ({code}): the principal lacks an ACL.",
        "Give it the ACLs of docs/acls.md; `sparkmirror check FILE` names the ones that are missing.",
        ("code",),
    ),
    _known(
        "authentication",
        r"(?:Failed (?:re-)?authentication with (?P<who>\S+)|SaslAuthenticationException|SslAuthenticationException|"
        r"SSL handshake failed|PKIX path building failed)",
        "A broker did not let the client in, or its certificate is not trusted.",
        "Check security.protocol, sasl.jaas.config and the truststore; `sparkmirror check FILE` says which of them is wrong.",
    ),
    _known(
        "terminated-connection",
        r"terminated during authentication|Bootstrap broker \S+ .*disconnected",
        "The broker closed the connection before the login was over: the client speaks plaintext to a TLS listener, or "
        "the other way round, or a firewall is in between.",
        "Set security.protocol to what the listener speaks.",
    ),
    _known(
        "unreachable",
        r"Connection to node (?P<node>-?\d+) \((?P<where>[^)]+)\) could not be established",
        "Broker {node} cannot be reached at {where}.",
        "A node below zero is a bootstrap address: correct bootstrap.servers. Any other is an address that the broker "
        "advertises: correct its advertised.listeners.",
        ("node", "where"),
    ),
    _known(
        "record-too-large",
        r"RecordTooLargeException|MESSAGE_TOO_LARGE|bytes when serialized which is larger than",
        "A record is larger than the target (max.message.bytes) or, in Java, the producer (max.request.size) takes.",
        "Raise max.message.bytes of the remote topic; for Java also producer.override.max.request.size.",
    ),
    _known(
        "replication-factor",
        r"InvalidReplicationFactorException|INVALID_REPLICATION_FACTOR|Unable to replicate the partition \d+ time",
        "A topic was to be created with more replicas than the cluster has brokers.",
        "Set replication.factor, offset-syncs.topic.replication.factor, checkpoints.topic.replication.factor, "
        "heartbeats.topic.replication.factor and {{offset,config,status}}.storage.replication.factor to what the "
        "cluster has.",
    ),
    _known(
        "not-enough-replicas",
        r"NotEnoughReplicas(?:AfterAppend)?Exception|NOT_ENOUGH_REPLICAS",
        "Fewer replicas are in sync than min.insync.replicas asks for, so the topic takes no records.",
        "Bring the missing brokers back, or lower min.insync.replicas of the topic.",
    ),
    _known(
        "scheduler-timeout",
        r"(?:Scheduler for \S+ timed out running task: |timed out running task: )(?P<task>.+)",
        "MirrorMaker 2 did not finish '{task}' within admin.timeout.ms: a cluster answers slowly or not at all.",
        "Raise admin.timeout.ms; check with `sparkmirror check FILE` that both clusters can be reached.",
        ("task",),
        Level.WARNING,
    ),
)
