"""What topics are called on the other side: a cluster alias and a topic name come in, names go out.

The rules are those of MirrorMaker 2's `ReplicationPolicy`, `DefaultReplicationPolicy` and
`IdentityReplicationPolicy` in Kafka 4.3.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from sparkmirror.errors import ConfigError

HEARTBEATS_TOPIC = "heartbeats"
_SEPARATOR_KEY = "replication.policy.separator"
_INTERNAL_SEPARATOR_KEY = "replication.policy.internal.topic.separator.enabled"


@runtime_checkable
class ReplicationPolicy(Protocol):
    """The names of remote topics and of MirrorMaker's own topics, and how to tell them apart.

    Called on the worker and on executors, from any thread: a policy keeps no changing state.
    """

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """What `topic` of the source cluster is called on the target."""
        ...

    def topic_source(self, topic: str) -> str | None:
        """The alias of the cluster that `topic` was copied from; None if it was not copied."""
        ...

    def upstream_topic(self, topic: str) -> str | None:
        """What `topic` is called on the cluster it was copied from; None if it was not copied."""
        ...

    def original_topic(self, topic: str) -> str:
        """What `topic` is called where it was first written."""
        ...

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Whether `topic` carries heartbeats, copied or not."""
        ...

    def is_checkpoints_topic(self, topic: str) -> bool:
        """Whether `topic` carries checkpoints."""
        ...

    def is_mm2_internal_topic(self, topic: str) -> bool:
        """Whether `topic` belongs to the replicator or its worker."""
        ...

    def is_internal_topic(self, topic: str) -> bool:
        """Whether `topic` is never copied because Kafka or the replicator keeps state in it."""
        ...

    def offset_syncs_topic(self, cluster_alias: str) -> str:
        """The offset-syncs topic that is about `cluster_alias`."""
        ...

    def checkpoints_topic(self, cluster_alias: str) -> str:
        """The topic with the checkpoints of flows out of `cluster_alias`."""
        ...

    def heartbeats_topic(self) -> str:
        """The topic that heartbeats are written to."""
        ...


_METHODS = (
    "format_remote_topic",
    "topic_source",
    "upstream_topic",
    "original_topic",
    "is_heartbeats_topic",
    "is_checkpoints_topic",
    "is_mm2_internal_topic",
    "is_internal_topic",
    "offset_syncs_topic",
    "checkpoints_topic",
    "heartbeats_topic",
)


class DefaultReplicationPolicy:
    """Remote topics carry their source's alias: `orders` of `A` is `A.orders`.

    Any name with the separator in it therefore counts as a copy: `foo.bar` comes from `foo`.
    """

    def __init__(self) -> None:
        self.separator = "."
        self.internal_separator = "."

    def configure(self, properties: Mapping[str, str]) -> None:
        """Take the separator, and whether internal topics use it too, from a connector config."""
        if _SEPARATOR_KEY not in properties:
            return
        self.separator = properties[_SEPARATOR_KEY]
        enabled = properties.get(_INTERNAL_SEPARATOR_KEY, "true").strip().lower() == "true"
        self.internal_separator = self.separator if enabled else "."

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        # Java's split: no empty parts at the end, and an empty separator cuts between characters.
        parts = topic.split(self.separator) if self.separator else list(topic)
        while parts and not parts[-1]:
            parts.pop()
        return parts[0] if len(parts) > 1 else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        seen = {topic}
        while (upstream := self.upstream_topic(topic)) is not None and upstream not in seen:
            seen.add(upstream)
            topic = upstream
        return topic

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.original_topic(topic) == self.heartbeats_topic()

    def is_checkpoints_topic(self, topic: str) -> bool:
        return topic.endswith(f"{self.internal_separator}checkpoints{self._internal_suffix()}")

    def is_mm2_internal_topic(self, topic: str) -> bool:
        own = topic.startswith("mm2") and topic.endswith(self._internal_suffix())
        return own or self.is_checkpoints_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        return topic.startswith(("__", ".")) or self.is_mm2_internal_topic(topic)

    def offset_syncs_topic(self, cluster_alias: str) -> str:
        return f"mm2-offset-syncs{self.internal_separator}{cluster_alias}{self._internal_suffix()}"

    def checkpoints_topic(self, cluster_alias: str) -> str:
        return f"{cluster_alias}{self.internal_separator}checkpoints{self._internal_suffix()}"

    def heartbeats_topic(self) -> str:
        return HEARTBEATS_TOPIC

    def _internal_suffix(self) -> str:
        return f"{self.internal_separator}internal"


class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """Remote topics keep their names; heartbeats are renamed all the same, or they would mix.

    A topic counts as heartbeats here if its name ends so, as in Kafka: `my-heartbeats` is renamed.
    Cycles among other topics cannot be seen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.source_alias: str | None = None

    def configure(self, properties: Mapping[str, str]) -> None:
        """Take the separators and the alias of the source cluster from a connector config."""
        super().configure(properties)
        self.source_alias = properties.get("source.cluster.alias", self.source_alias)

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        if _looks_like_heartbeats(topic):
            return super().format_remote_topic(source_alias, topic)
        return topic

    def topic_source(self, topic: str) -> str | None:
        if _looks_like_heartbeats(topic):
            return super().topic_source(topic)
        return self.source_alias

    def upstream_topic(self, topic: str) -> str | None:
        if _looks_like_heartbeats(topic):
            return super().upstream_topic(topic)
        return topic


def _looks_like_heartbeats(topic: str) -> bool:
    return topic.endswith(HEARTBEATS_TOPIC)


KNOWN_POLICIES: dict[str, type[DefaultReplicationPolicy]] = {
    "org.apache.kafka.connect.mirror.DefaultReplicationPolicy": DefaultReplicationPolicy,
    "org.apache.kafka.connect.mirror.IdentityReplicationPolicy": IdentityReplicationPolicy,
    # Amazon's sample for MSK migrations, from before Kafka had a policy that keeps names.
    "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy": IdentityReplicationPolicy,
}


def load_policy(class_name: str, properties: Mapping[str, str]) -> ReplicationPolicy:
    """The policy of that Java name, or the user's own Python class `package.module.Class`.

    A user's class is made without arguments; its `configure(properties)` is called if it has one.
    """
    policy = (
        KNOWN_POLICIES[class_name]() if class_name in KNOWN_POLICIES else _instantiate(class_name)
    )
    missing = [method for method in _METHODS if not callable(getattr(policy, method, None))]
    if missing or not isinstance(policy, ReplicationPolicy):
        raise ConfigError(
            f"replication.policy.class {class_name} lacks {', '.join(missing)}.",
            "Add what is missing, or derive the class from "
            "sparkmirror.policy.naming.DefaultReplicationPolicy.",
        )
    configure = getattr(policy, "configure", None)
    if callable(configure):
        configure(properties)
    return policy


def _instantiate(class_name: str) -> object:
    module_name, _, attribute = class_name.rpartition(".")
    try:
        if not module_name or module_name.startswith("."):
            raise ImportError("the name has no module part")
        policy_class: object = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError, SyntaxError) as error:
        raise ConfigError(
            f"replication.policy.class {class_name} cannot be loaded: {error}.",
            f"Use one of {', '.join(sorted(KNOWN_POLICIES))}, or a Python class given as "
            "package.module.Class that is installed or on PYTHONPATH here and on the Spark "
            "executors. Java classes cannot be loaded: write the same rules in Python.",
        ) from error
    if not isinstance(policy_class, type):
        raise ConfigError(
            f"replication.policy.class {class_name} is not a class.", "Name a class in that module."
        )
    try:
        instance: object = policy_class()
    except TypeError as error:
        raise ConfigError(
            f"replication.policy.class {class_name} cannot be made without arguments: {error}.",
            "Give its constructor no required arguments; read settings in configure(properties).",
        ) from error
    return instance


def is_cycle(policy: ReplicationPolicy, topic: str, target_alias: str) -> bool:
    """Whether `topic` has passed through the target already, so that copying it would loop."""
    seen: set[str] = set()
    current: str | None = topic
    while current is not None and current not in seen:
        source = policy.topic_source(current)
        if source is None or source == target_alias:
            return source is not None
        seen.add(current)
        current = policy.upstream_topic(current)
    return False
