"""The ACLs that a flow needs: which parts of it run and what its topics are called in, operations on resources out.

What stands here is what `check` looks for, what `docs/acls.md` is made from, and what a flow is run with in the tests. Operations
that others include are left out: Read, Write, Delete and Alter include Describe; AlterConfigs includes DescribeConfigs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from sparkmirror.formats.offset_map import offset_map_topic
from sparkmirror.formats.progress import progress_topic
from sparkmirror.kafka.denials import Operation, Resource

Side = Literal["source", "target", "worker"]
Part = Literal["source", "checkpoint", "heartbeat", "worker"]
Family = Literal["topics", "remote", "routed", "groups", ""]
"""What a name stands for if it is not one resource: the topics that are copied, their copies, those that a query names, the
groups that are followed."""

IMPLIED: dict[Operation, tuple[Operation, ...]] = {
    "Read": ("Describe",),
    "Write": ("Describe",),
    "Delete": ("Describe",),
    "Alter": ("Describe",),
    "AlterConfigs": ("DescribeConfigs",),
}


@dataclass(frozen=True, slots=True)
class Privilege:
    """One operation on one resource (or family of resources) of one side, who needs it and what for."""

    side: Side
    resource: Resource
    name: str
    operation: Operation
    part: Part
    why: str
    family: Family = ""
    when: str = ""
    """The setting with which it is needed; empty if always."""
    creates: bool = False
    """Needed only until the topic is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the resources of a flow are called; for the page, words in angle brackets."""

    source_alias: str
    target_alias: str
    topics: str
    remote: str
    groups: str
    offset_syncs: str
    checkpoints: str
    opposite_checkpoints: str
    heartbeats: str
    routed: str = "topics that a query names"
    dead_letters: str = ""
    worker_group: str = ""
    worker_topics: tuple[str, ...] = ()

    @property
    def offset_map(self) -> str:
        return offset_map_topic(self.source_alias)

    @property
    def opposite_map(self) -> str:
        return offset_map_topic(self.target_alias)

    @property
    def progress(self) -> str:
        return progress_topic(self.source_alias)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What of a flow runs, and with which switches."""

    source: bool = True
    checkpoint: bool = True
    heartbeat: bool = True
    worker: bool = True
    offset_syncs: bool = True
    syncs_at: Literal["source", "target"] = "source"
    topic_configs: bool = True
    topic_acls: bool = True
    topic_deletes: bool = False
    group_offsets: bool = False
    placed: bool = False
    """Whether copies have numbers of partitions of their own, so that groups are translated by time."""
    query: bool = False
    """Whether records pass through a query, which may name topics."""
    dead_letters: bool = False
    """Whether records on which it fails are written to a topic."""
    standalone: bool = False


@dataclass(frozen=True, slots=True)
class _Rights:
    """A few operations at once: `on` gives one privilege each."""

    part: Part
    side: Side
    when: str = ""
    family: Family = ""
    found: list[Privilege] = field(default_factory=list)

    def on(
        self,
        resource: Resource,
        name: str,
        operation: Operation,
        why: str,
        *,
        creates: bool = False,
    ) -> None:
        self.found.append(
            Privilege(
                self.side,
                resource,
                name,
                operation,
                self.part,
                why,
                self.family,
                self.when,
                creates,
            )
        )

    def own_topic(self, name: str, what: str, *, read: str = "") -> None:
        """A topic of the replicator: it is created and written, and read where that is said."""
        self.on("topic", name, "Create", f"create the {what} topic", creates=True)
        self.on("topic", name, "Write", f"write the {what} topic")
        if read:
            self.on("topic", name, "Read", read)


def needed(names: Names, parts: Parts) -> list[Privilege]:
    """All that the parts need, side by side; nothing twice for the same part."""
    found: list[Privilege] = []
    if parts.source:
        found += _source(names, parts)
    if parts.checkpoint:
        found += _checkpoint(names, parts)
    if parts.heartbeat:
        found += _heartbeat(names)
    if parts.worker:
        found += _worker(names, parts)
    return found


def _source(names: Names, parts: Parts) -> Iterator[Privilege]:
    reading = _Rights("source", "source", family="topics")
    reading.on("topic", names.topics, "Read", "read the records")
    reading.on("topic", names.topics, "DescribeConfigs", "give remote topics the same configs")
    yield from reading.found
    writing = _Rights("source", "target", family="remote")
    writing.on("topic", names.remote, "Create", "create remote topics", creates=True)
    writing.on("topic", names.remote, "Write", "write the records")
    writing.on("topic", names.remote, "Read", "find out after a start what is there already")
    writing.on("topic", names.remote, "Alter", "add partitions when the source topic grows")
    yield from writing.found
    own = _Rights("source", "target")
    own.own_topic(
        names.progress, "progress", read="tell how far the tasks are, and why one stands still"
    )
    yield from own.found
    yield from _offset_syncs(names, parts)
    yield from _query(names, parts)
    yield from _kept_in_step(names, parts)


def _offset_syncs(names: Names, parts: Parts) -> Iterator[Privilege]:
    if not parts.offset_syncs:
        return
    when = "emit.offset-syncs.enabled (on unless switched off)"
    syncs = _Rights("source", parts.syncs_at, when)
    syncs.own_topic(names.offset_syncs, "offset-syncs")
    offset_map = _Rights("source", "target", when)
    offset_map.own_topic(names.offset_map, "offset-map", read="keep the offset map whole and small")
    yield from (*syncs.found, *offset_map.found)


def _query(names: Names, parts: Parts) -> Iterator[Privilege]:
    if parts.query:
        routed = _Rights("source", "target", "transform.sql", "routed")
        routed.on("topic", names.routed, "Create", "create topics that records go to", creates=True)
        routed.on("topic", names.routed, "Write", "write the records")
        routed.on("topic", names.routed, "Read", "find out after a start what is there already")
        routed.on("topic", names.routed, "Alter", "add partitions when the source topic grows")
        yield from routed.found
    if parts.dead_letters:
        dead = _Rights("source", "target", "errors.deadletterqueue.topic.name")
        dead.own_topic(names.dead_letters, "dead letter")
        yield from dead.found


def _kept_in_step(names: Names, parts: Parts) -> Iterator[Privilege]:
    """What is copied beside the records."""
    if parts.topic_configs:
        configs = _Rights("source", "target", "sync.topic.configs.enabled", "remote")
        configs.on("topic", names.remote, "AlterConfigs", "copy changed topic configs")
        yield from configs.found
    if parts.topic_acls:
        for side, operation, why in _ACLS:
            acls = _Rights("source", side, "sync.topic.acls.enabled")
            acls.on("cluster", "", operation, why)
            yield from acls.found
    if parts.topic_deletes:
        deletes = _Rights("source", "target", "sync.topic.deletes.enabled", "remote")
        deletes.on("topic", names.remote, "Delete", "delete copies of deleted topics")
        yield from deletes.found


_ACLS: tuple[tuple[Side, Operation, str], ...] = (
    ("source", "Describe", "read the ACLs of topics"),
    ("target", "Alter", "give remote topics the same ACLs"),
)


def _checkpoint(names: Names, parts: Parts) -> Iterator[Privilege]:
    groups = _Rights("checkpoint", "source", family="groups")
    groups.on("group", names.groups, "Describe", "list the groups and read what they committed")
    yield from groups.found
    topics = _Rights("checkpoint", "source", family="topics")
    topics.on("topic", names.topics, "Describe", "see the groups' offsets in them")
    yield from topics.found
    syncs = _Rights("checkpoint", parts.syncs_at)
    syncs.on("topic", names.offset_syncs, "Read", "translate offsets")
    yield from syncs.found
    back = _Rights("checkpoint", "source", "there is a flow in the opposite direction too")
    back.on("topic", names.opposite_map, "Read", "translate offsets of groups that come back")
    back.on("topic", names.opposite_checkpoints, "Read", "know which offsets the other flow set")
    yield from back.found
    target = _Rights("checkpoint", "target")
    target.on("topic", names.offset_map, "Read", "translate offsets exactly")
    target.own_topic(names.checkpoints, "checkpoints", read="go on from the last checkpoints")
    yield from target.found
    seen = _Rights("checkpoint", "target", family="remote")
    seen.on("topic", names.remote, "Describe", "notice that a remote topic was created again")
    yield from seen.found
    if parts.placed:
        times = _Rights("checkpoint", "source", "target.partitions", "topics")
        times.on("topic", names.topics, "Read", "see the times of what groups have not read")
        ends = _Rights("checkpoint", "target", "target.partitions", "remote")
        ends.on("topic", names.remote, "DescribeConfigs", "see whether copies keep their times")
        ends.on("topic", names.remote, "Describe", "find offsets by time")
        yield from (*times.found, *ends.found)
    if parts.group_offsets:
        when = "sync.group.offsets.enabled"
        moved = _Rights("checkpoint", "target", when, "groups")
        moved.on("group", names.groups, "Read", "commit for groups without members")
        yield from moved.found
        copies = _Rights("checkpoint", "target", when, "remote")
        copies.on("topic", names.remote, "Read", "commit offsets in them")
        yield from copies.found


def _heartbeat(names: Names) -> Iterator[Privilege]:
    rights = _Rights("heartbeat", "target")
    rights.own_topic(names.heartbeats, "heartbeats")
    yield from rights.found


def _worker(names: Names, parts: Parts) -> Iterator[Privilege]:
    rights = _Rights("worker", "worker")
    if not parts.standalone:
        rights.on("group", names.worker_group, "Read", "share the work among workers")
    for topic in names.worker_topics:
        rights.own_topic(topic, "worker's", read="read back what workers have written")
        rights.on("topic", topic, "DescribeConfigs", "see that the topic is compacted")
    yield from rights.found


def merged(privileges: Iterable[Privilege]) -> list[Privilege]:
    """Each operation on a resource once, the first reason kept, without those that another one on the same resource includes."""
    found: dict[tuple[Side, Resource, str, Operation], Privilege] = {}
    for one in privileges:
        found.setdefault((one.side, one.resource, one.name, one.operation), one)
    included = {
        (side, resource, name, implied)
        for side, resource, name, operation in found
        for implied in IMPLIED.get(operation, ())
    }
    return [one for key, one in found.items() if key not in included]
