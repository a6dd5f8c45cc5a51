"""Asking clusters what they know of their flows: a file that names them in; translations and trees of flows out."""

from __future__ import annotations

import time
from collections.abc import Sequence

from sparkmirror.client import MirrorClient
from sparkmirror.config.client_files import ClientFile
from sparkmirror.config.flow_keys import nearest
from sparkmirror.errors import SparkMirrorError
from sparkmirror.policy.java_pattern import JavaPattern
from sparkmirror.policy.lineage import checkpoints_source, sources

from .topology import HeartbeatsTopic, own_alias, upstream_tree
from .topology_view import ClusterView
from .translation import Translation, translations


def client_of(file: ClientFile, alias: str | None, source: str | None = None) -> MirrorClient:
    """A client of a cluster of the file (None: the only one)."""
    return MirrorClient(file.client(alias, source), alias or "target")


# -- offsets --------------------------------------------------------------------------------------


def translated_groups(
    client: MirrorClient, group: str | JavaPattern, source: str | None, timeout: float
) -> list[Translation]:
    """The translated offsets of a group, or of all groups whose whole names match; an error if there are none."""
    seen: set[str] = set()

    def is_wanted(name: str) -> bool:
        seen.add(name)
        return name == group if isinstance(group, str) else group.matches(name)

    aliases = checkpointed_sources(client) if source is None else [source]
    found: list[Translation] = []
    for alias in aliases:
        found += translations(alias, client.checkpoints(alias, timeout, is_wanted))
    if not found:
        raise _unknown(client, group, aliases, seen)
    return found


def checkpointed_sources(client: MirrorClient) -> list[str]:
    """The clusters whose groups have checkpoints here."""
    policy = client.replication_policy
    found = {checkpoints_source(policy, topic) for topic in client.checkpoint_topics()}
    aliases = sorted(alias for alias in found if alias is not None)
    if not aliases:
        raise SparkMirrorError(
            f"There is no checkpoints topic on {client.cluster.settings}.",
            "Run a checkpoint connector for a flow into it, or correct replication.policy.* in the file.",
        )
    return aliases


def _unknown(
    client: MirrorClient, group: str | JavaPattern, aliases: Sequence[str], seen: set[str]
) -> SparkMirrorError:
    where = f"from {', '.join(aliases)} on {client.cluster.settings}"
    known = f"{len(seen)} other group(s) have some." if seen else "No group has any."
    if isinstance(group, str):
        return SparkMirrorError(
            f"Group {group} has no checkpoints {where}. {known}{nearest(group, seen)}",
            "Check the name, that the group has committed offsets at its source, and that the checkpoint connector's "
            "groups and topics include it.",
        )
    return SparkMirrorError(f"No group with checkpoints {where} matches {group.pattern}. {known}")


# -- flows ----------------------------------------------------------------------------------------


def flows_into(file: ClientFile, timeout: float) -> list[ClusterView]:
    """What each cluster of the file says, or why it does not; an error only if there is just one to ask."""
    if not file.aliases:
        return [_asked(file, None, timeout)]
    found = []
    for alias in file.aliases:
        try:
            found.append(_asked(file, alias, timeout))
        except SparkMirrorError as error:
            found.append(ClusterView(alias, file.address(alias), error=str(error)))
    return found


def _asked(file: ClientFile, alias: str | None, timeout: float) -> ClusterView:
    with client_of(file, alias) as client:
        topics = heartbeats_topics(client, timeout)
        name = alias or own_alias(topics)
        return ClusterView(name, file.address(alias), upstream_tree(name, topics, file.may_copy))


def heartbeats_topics(client: MirrorClient, timeout: float) -> list[HeartbeatsTopic]:
    """The heartbeats topics of a cluster with what they say."""
    policy = client.replication_policy
    deadline = time.monotonic() + timeout
    return [
        HeartbeatsTopic(
            name,
            sources(policy, name),
            tuple(client.heartbeats(name, max(1.0, deadline - time.monotonic()))),
        )
        for name in sorted(client.heartbeat_topics())
    ]
