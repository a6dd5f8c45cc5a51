"""What a cluster knows about the flows into it: client properties in; upstream clusters, remote topics, translated offsets out.

The public interface of this package for programs, with the meaning of Kafka's `MirrorClient` (the class) and `RemoteClusterUtils`
(the functions). A consumer that moves to the target of a flow takes its offsets from here:

    >>> props = {"bootstrap.servers": "target:9092"}
    >>> remote_consumer_offsets(props, "source", "billing", timeout=30.0)
    {('source.orders', 0): GroupOffset(offset=4711, metadata='')}
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from types import TracebackType
from typing import Self, overload

from sparkmirror.config.clients import is_client_level, with_prefix
from sparkmirror.config.keys_mirror import DEFAULT_POLICY
from sparkmirror.config.providers import resolve_named
from sparkmirror.errors import BrokerError, ConfigError, KafkaError
from sparkmirror.formats.mirror import Checkpoint, Heartbeat
from sparkmirror.kafka import messages
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import ClientSettings, client_settings
from sparkmirror.offsets.checkpoint_reader import CheckpointReader
from sparkmirror.offsets.groups import GroupOffset, TopicPartition
from sparkmirror.offsets.heartbeat_reader import last_heartbeats
from sparkmirror.offsets.internal_topic import InternalTopic
from sparkmirror.policy import lineage
from sparkmirror.policy.naming import ReplicationPolicy, load_policy

__all__ = [
    "GroupOffset",
    "GroupOffsets",
    "MirrorClient",
    "TopicPartition",
    "checkpoint_topics",
    "heartbeat_topics",
    "remote_consumer_offsets",
    "remote_topics",
    "replication_hops",
    "upstream_clusters",
]

log = logging.getLogger(__name__)
GroupOffsets = dict[TopicPartition, GroupOffset]
"""Where a group would go on, by topic and partition of the cluster that was asked."""
_BOOTSTRAP = "bootstrap.servers"


class MirrorClient:
    """Asks one cluster, that with the given `bootstrap.servers`, what it knows of its upstream clusters.

    `props` are those that Java's class takes: `bootstrap.servers`, the security keys, and `replication.policy.*`. `admin.` and
    `consumer.` before a key give it to one kind of client only. Other client settings are not passed on, as in Java.

    Connects when first asked. For one thread at a time. Errors are those of `sparkmirror.errors`.
    """

    def __init__(self, props: Mapping[str, str], alias: str = "target") -> None:
        """`alias` is only used to name the cluster in messages."""
        resolved = resolve_named(props, props)
        if not resolved.get(_BOOTSTRAP, "").strip():
            raise ConfigError(f"{_BOOTSTRAP} is missing.", f"Set {_BOOTSTRAP}=host:port.")
        policy = resolved.get("replication.policy.class") or DEFAULT_POLICY
        self._policy = load_policy(policy, resolved)
        self._consumer = _settings(resolved, "consumer.", alias)
        self._cluster = Cluster(_settings(resolved, "admin.", alias))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections; it may be asked again all the same."""
        self._cluster.close()

    @property
    def cluster(self) -> Cluster:
        """The cluster that it asks, for other questions."""
        return self._cluster

    @property
    def replication_policy(self) -> ReplicationPolicy:
        """What names of topics mean here."""
        return self._policy

    # -- topics -------------------------------------------------------------------------------

    def heartbeat_topics(self) -> set[str]:
        """The heartbeats topics: the cluster's own and copies of others'."""
        return {topic for topic in self._topics() if self._policy.is_heartbeats_topic(topic)}

    def checkpoint_topics(self) -> set[str]:
        """The checkpoints topics, one for each flow into this cluster that has a checkpoint connector."""
        return {topic for topic in self._topics() if self._policy.is_checkpoints_topic(topic)}

    def upstream_clusters(self) -> set[str]:
        """The aliases of all clusters whose heartbeats arrive here, over any number of flows."""
        return {
            source
            for topic in self.heartbeat_topics()
            for source in lineage.sources(self._policy, topic)
        }

    def replication_hops(self, alias: str) -> int:
        """How many flows lie between cluster `alias` and this one, by the shortest way; -1 if its heartbeats do not arrive."""
        _require(alias=alias)
        return lineage.hops(self._policy, self.heartbeat_topics(), alias)

    def remote_topics(self, source: str | None = None) -> set[str]:
        """The topics that are copies; with `source`, those that were copied straight from that cluster."""
        return {
            topic
            for topic in self._topics()
            if lineage.is_remote_topic(self._policy, topic)
            and (source is None or self._policy.topic_source(topic) == source)
        }

    def _topics(self) -> list[str]:
        self._cluster.refresh(None)
        return [name for name, info in self._cluster.topics.items() if not info.internal]

    # -- records ------------------------------------------------------------------------------

    @overload
    def remote_consumer_offsets(self, group: str, alias: str, timeout: float) -> GroupOffsets: ...
    @overload
    def remote_consumer_offsets(
        self, group: re.Pattern[str], alias: str, timeout: float
    ) -> dict[str, GroupOffsets]: ...
    def remote_consumer_offsets(
        self, group: str | re.Pattern[str], alias: str, timeout: float
    ) -> GroupOffsets | dict[str, GroupOffsets]:
        """Where a group of the upstream cluster `alias` would go on here, by its last checkpoints; empty for an unknown group.

        With a pattern, the same for every group whose whole name matches. Reading stops after `timeout` seconds: the result then
        is what was read until then, as in Java.
        """
        _require(group=group, alias=alias, timeout=timeout)
        if isinstance(group, str):
            return _by_group(self.checkpoints(alias, timeout, group.__eq__)).get(group, {})
        return _by_group(
            self.checkpoints(alias, timeout, lambda name: group.fullmatch(name) is not None)
        )

    def checkpoints(
        self, alias: str, timeout: float, is_wanted: Callable[[str], bool] | None = None
    ) -> list[Checkpoint]:
        """The last checkpoint of each group (that is wanted) and partition, of the flow out of cluster `alias`.

        An error that may pass is tried again until `timeout` seconds are over. A missing topic is not waited for.
        """
        deadline = time.monotonic() + timeout
        cluster = Cluster(self._consumer)
        name = self._policy.checkpoints_topic(alias)
        topic = InternalTopic(cluster, name)
        reader = (
            CheckpointReader(topic) if is_wanted is None else CheckpointReader(topic, is_wanted)
        )

        def is_over() -> bool:
            return time.monotonic() >= deadline

        try:
            if not is_over() and not cluster.retrying(
                lambda: _present(lambda: reader.read(is_over), alias), deadline
            ):
                log.info("%s was read for %g s, and not to its end.", name, timeout)
        finally:
            cluster.close()
        return list(reader.checkpoints)

    def heartbeats(self, topic: str, timeout: float) -> list[Heartbeat]:
        """The last heartbeat of each flow in a heartbeats topic, as far as they are found within `timeout` seconds."""
        cluster = Cluster(self._consumer)
        try:
            return last_heartbeats(InternalTopic(cluster, topic), timeout)
        finally:
            cluster.close()


def replication_hops(props: Mapping[str, str], alias: str) -> int:
    """`MirrorClient.replication_hops`, once."""
    with MirrorClient(props) as client:
        return client.replication_hops(alias)


def heartbeat_topics(props: Mapping[str, str]) -> set[str]:
    """`MirrorClient.heartbeat_topics`, once."""
    with MirrorClient(props) as client:
        return client.heartbeat_topics()


def checkpoint_topics(props: Mapping[str, str]) -> set[str]:
    """`MirrorClient.checkpoint_topics`, once."""
    with MirrorClient(props) as client:
        return client.checkpoint_topics()


def upstream_clusters(props: Mapping[str, str]) -> set[str]:
    """`MirrorClient.upstream_clusters`, once."""
    with MirrorClient(props) as client:
        return client.upstream_clusters()


def remote_topics(props: Mapping[str, str], source: str | None = None) -> set[str]:
    """`MirrorClient.remote_topics`, once."""
    with MirrorClient(props) as client:
        return client.remote_topics(source)


@overload
def remote_consumer_offsets(
    props: Mapping[str, str], alias: str, group_or_pattern: str, timeout: float
) -> GroupOffsets: ...
@overload
def remote_consumer_offsets(
    props: Mapping[str, str], alias: str, group_or_pattern: re.Pattern[str], timeout: float
) -> dict[str, GroupOffsets]: ...
def remote_consumer_offsets(
    props: Mapping[str, str],
    alias: str,
    group_or_pattern: str | re.Pattern[str],
    timeout: float,
) -> GroupOffsets | dict[str, GroupOffsets]:
    """`MirrorClient.remote_consumer_offsets`, once. Java's `RemoteClusterUtils` calls this `translateOffsets`."""
    with MirrorClient(props) as client:
        return client.remote_consumer_offsets(group_or_pattern, alias, timeout)


def _settings(props: Mapping[str, str], prefix: str, alias: str) -> ClientSettings:
    """How one kind of client reaches the cluster: a key with the kind before it beats the plain one."""
    merged = {**props, **with_prefix(props, prefix)}
    found = {name: value for name, value in merged.items() if is_client_level(name)}
    return client_settings(alias, found, "sparkmirror-client")


def _present(read: Callable[[], bool], alias: str) -> bool:
    try:
        return read()
    except BrokerError as error:
        if error.code != messages.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise KafkaError(
            f"{error.message} So there are no checkpoints of {alias} here.",
            f"Check the alias, and that a checkpoint connector runs for the flow out of {alias}.",
        ) from error


def _by_group(checkpoints: Collection[Checkpoint]) -> dict[str, GroupOffsets]:
    found: dict[str, GroupOffsets] = {}
    for c in checkpoints:
        offset = GroupOffset(c.downstream_offset, c.metadata)
        found.setdefault(c.group, {})[c.topic, c.partition] = offset
    return found


def _require(**arguments: object) -> None:
    for name, value in arguments.items():
        if value is None:
            raise TypeError(f"{name} is None")
