"""Where topics have come from: a policy and topic names in; chains of clusters, hops and aliases out.

The rules are those of MirrorMaker 2's `MirrorClient`.
"""

from __future__ import annotations

from collections.abc import Iterable

from .naming import ReplicationPolicy

UNREACHABLE = -1
_MARK = "\0"  # in no topic's name


def sources(policy: ReplicationPolicy, topic: str) -> tuple[str, ...]:
    """The clusters that a topic has passed through, the nearest first.

    The walk ends at a cluster that was there already: policies that keep names cannot tell a topic from its copy.
    """
    found: dict[str, None] = {}
    current: str | None = topic
    while current is not None:
        source = policy.topic_source(current)
        if source is None or source in found:
            break
        found[source] = None
        current = policy.upstream_topic(current)
    return tuple(found)


def hops(policy: ReplicationPolicy, topics: Iterable[str], alias: str) -> int:
    """How many flows lead from cluster `alias` to the one with these heartbeats topics, by the shortest way; -1 if none do."""
    chains = [sources(policy, topic) for topic in topics]
    return min((chain.index(alias) + 1 for chain in chains if alias in chain), default=UNREACHABLE)


def is_remote_topic(policy: ReplicationPolicy, topic: str) -> bool:
    """Whether a topic is a copy, and not one in which Kafka or the replicator keeps state."""
    return not policy.is_internal_topic(topic) and policy.topic_source(topic) is not None


def checkpoints_source(policy: ReplicationPolicy, topic: str) -> str | None:
    """The cluster whose groups a checkpoints topic is about; None if its name does not tell."""
    head, _, tail = policy.checkpoints_topic(_MARK).partition(_MARK)
    alias = topic.removeprefix(head).removesuffix(tail)
    return alias if alias and policy.checkpoints_topic(alias) == topic else None
