"""Topics, properties and ACLs that change at random, but alike for a seed: a source cluster in, rounds of changes out."""

from __future__ import annotations

import random
from collections.abc import Mapping

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import acls, admin, topic_configs
from sparkmirror.kafka.acls import AclBinding, AclOperation, Pattern, Permission, Resource
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.topic_configs import Alteration

MARKER = "t-marker"
_VALUES: Mapping[str, tuple[str, ...]] = {
    "cleanup.policy": ("delete", "compact", "compact,delete"),
    "compression.type": ("producer", "lz4", "zstd", "uncompressed"),
    "delete.retention.ms": ("1000", "86400000", "172800000"),
    "file.delete.delay.ms": ("1000", "60000"),
    "flush.messages": ("9223372036854775807", "1000"),
    "index.interval.bytes": ("4096", "8192"),
    "max.message.bytes": ("1048588", "2000000", "3000000"),
    "message.timestamp.after.max.ms": ("3600000", "7200000"),
    "min.cleanable.dirty.ratio": ("0.1", "0.5"),
    "min.compaction.lag.ms": ("0", "1000"),
    "retention.bytes": ("-1", "1000000000"),
    "retention.ms": ("604800000", "-1", "86400000000"),
    "segment.bytes": ("1073741824", "70000000"),
    "segment.ms": ("604800000", "86400000"),
    # Excluded from the copy by default.
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "min.insync.replicas": ("1",),
    "unclean.leader.election.enable": ("true", "false"),
}
_OPERATIONS = tuple(
    operation
    for operation in AclOperation
    if operation
    not in (AclOperation.ANY, AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE)
)
_GROUP_OPERATIONS = (
    AclOperation.ALL,
    AclOperation.READ,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
)


class ChangingTopics:
    """What there is at the source. Each change is made by one request, and has been answered when the call returns."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._draw = random.Random(seed)
        self._made = 0
        self.topics: dict[str, int] = {}
        self._deleted: list[str] = []
        self._edited: set[str] = set()
        self._bindings: list[AclBinding] = []

    def begin(self, topics: int, bindings: int) -> None:
        """The first ones, and the marker."""
        self._create([MARKER, *(self._new_name() for _ in range(topics - 1))])
        self._allow(bindings)

    def round(self, number: int) -> None:
        """Everything changes a little; the marker last, so whoever has seen that has seen all."""
        draw = self._draw
        # What was edited by hand stays: whoever has not taken the edit back in time never would.
        changed = draw.sample(sorted(self.topics.keys() - {MARKER} - self._edited), 40)
        gone, wider, altered = changed[:5], changed[5:10], changed[10:]
        self._alter(altered)
        self._widen(wider)
        self._delete(gone)
        again = draw.sample(self._deleted[:-5], 2) if len(self._deleted) > 10 else []
        self._deleted = [name for name in self._deleted if name not in again]
        self._create([*again, *(self._new_name() for _ in range(4))])
        self._forbid(30)
        self._allow(40)
        self.mark(number)

    def edited(self) -> dict[str, list[Alteration]]:
        """Edits by hand, by source topic; to be made on its copy on every target alike, before the next round."""
        self._edited = set(self._draw.sample(sorted(self.topics), 20))
        return {topic: self._alterations(2) for topic in sorted(self._edited)}

    # -- topics -------------------------------------------------------------------------------

    def _new_name(self) -> str:
        self._made += 1
        return f"t-{self._made:03d}{self._draw.choice(['', '.dotted', '_under', '-dash'])}"

    def _create(self, names: list[str]) -> None:
        draw = self._draw
        new = []
        for name in names:
            chosen = draw.sample(sorted(_VALUES), draw.randint(0, 5))
            configs = {key: draw.choice(_VALUES[key]) for key in chosen}
            new.append(NewTopic(name, draw.randint(1, 2), 1, configs))
        _all_done(admin.create_topics(self._cluster, new))
        self.topics |= {topic.name: topic.partitions for topic in new}

    def _alter(self, names: list[str]) -> None:
        wanted = {name: self._alterations(self._draw.randint(1, 4)) for name in names}
        _all_done(topic_configs.alter(self._cluster, wanted))

    def _alterations(self, count: int) -> list[Alteration]:
        draw = self._draw
        found = []
        for key in draw.sample(sorted(_VALUES), count):
            if draw.random() < 0.35:
                found.append(Alteration(key, "DELETE"))
            else:
                found.append(Alteration(key, "SET", draw.choice(_VALUES[key])))
        return found

    def _widen(self, names: list[str]) -> None:
        wanted = {name: self.topics[name] + 1 for name in names}
        _all_done(admin.create_partitions(self._cluster, wanted))
        self.topics |= wanted

    def _delete(self, names: list[str]) -> None:
        _all_done(admin.delete_topics(self._cluster, names))
        for name in names:
            del self.topics[name]
        self._deleted += names

    def mark(self, number: int) -> None:
        mark = [Alteration("segment.jitter.ms", "SET", str(number + 1))]
        _all_done(topic_configs.alter(self._cluster, {MARKER: mark}))
        _all_done(acls.create(self._cluster, [marker_binding(MARKER, number)]))

    # -- ACLs ---------------------------------------------------------------------------------

    def _allow(self, count: int) -> None:
        new = sorted({self._binding() for _ in range(count)})
        _all_done(acls.create(self._cluster, new))
        self._bindings = sorted({*self._bindings, *new})

    def _forbid(self, count: int) -> None:
        old = self._draw.sample(self._bindings, count)
        _all_done(acls.delete(self._cluster, old))
        self._bindings = sorted(set(self._bindings) - set(old))

    def _binding(self) -> AclBinding:
        draw = self._draw
        is_topic = draw.random() < 0.9
        names = [*self.topics, "*", "t-not-there", "t-", "__hidden", "mm2-x.internal", "A.t-001"]
        return AclBinding(
            Resource.TOPIC if is_topic else Resource.GROUP,
            draw.choice(names) if is_topic else draw.choice(["readers", "*", "re"]),
            Pattern.PREFIXED if draw.random() < 0.15 else Pattern.LITERAL,
            f"User:{draw.choice(['anna', 'bert', 'CN=carl,O=x', '*'])}",
            draw.choice(["*", "10.0.0.1"]),
            draw.choice(_OPERATIONS if is_topic else _GROUP_OPERATIONS),
            draw.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
        )


def marker_binding(topic: str, number: int) -> AclBinding:
    """The ACL that is added last in a round."""
    return AclBinding(
        Resource.TOPIC,
        topic,
        Pattern.LITERAL,
        f"User:round-{number}",
        "*",
        AclOperation.READ,
        Permission.ALLOW,
    )


def _all_done(
    outcomes: Mapping[str, BrokerError | None] | Mapping[AclBinding, BrokerError | None],
) -> None:
    failed = [str(error) for error in outcomes.values() if error is not None]
    assert not failed, failed
