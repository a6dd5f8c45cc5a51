"""Plans of a connector's source tasks: task configs and positions in, one plan for each Spark task out."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkmirror.connectors import metadata
from sparkmirror.connectors.source import assigned_partitions, task_count
from sparkmirror.connectors.source_settings import SourceSettings
from sparkmirror.dataplane.plan import PartitionPlan, TaskPlan, positions_of
from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.dataplane.rate_shares import limits_of_tasks, part_of_cap
from sparkmirror.kafka import topic_configs
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.spark.placement import pack

log = logging.getLogger(__name__)
_WIDTH_S = 2.0


@dataclass(frozen=True, slots=True)
class Room:
    """Where partitions may be placed."""

    slots: int
    is_roomy: bool
    """Whether partitions with a query may have as many Spark tasks again."""
    loads: Mapping[TopicPartition, float]
    before: Mapping[TopicPartition, int]
    """Where partitions were (`placement.where`)."""


def task_plans(
    name: str,
    settings: SourceSettings,
    tasks: Mapping[int, Mapping[str, str]],
    clusters: tuple[Cluster, Cluster],
    room: Room,
) -> list[TaskPlan]:
    """One plan for each Spark task; positions are read here, once for all."""
    source, target = clusters
    packed = pack(
        _partitions(settings, tasks, source, target),
        room.slots,
        is_roomy=room.is_roomy,
        loads=room.loads,
        before=room.before,
    )
    is_at_target = settings.store_cluster.bootstrap == settings.target.bootstrap
    home = target if is_at_target else Cluster(settings.store_cluster)
    try:
        home.refresh([settings.store.topic])
        store = PositionStore(home, settings.store)
        store.catch_up()
    finally:
        if home is not target:
            home.close()
    stamp = int(time.time() * 1000)
    limits = limits_of_tasks(packed, *_caps(settings, tasks, packed, source))
    return [
        TaskPlan(
            flow=name,
            index=index,
            stamp=stamp,
            source=settings.source,
            target=settings.target,
            store=settings.store,
            settings=settings.copy,
            partitions=tuple(partitions),
            positions=positions_of(
                partitions, {part.key: store.get(part.key) for part in partitions}
            ),
            read_to=tuple(store.read_to.items()),
            store_cluster=None if is_at_target else settings.store_cluster,
            limits=limits[index],
        )
        for index, partitions in enumerate(packed)
    ]


def wanted_tasks(
    settings: SourceSettings, tasks: Mapping[int, Mapping[str, str]], *, is_roomy: bool
) -> int:
    """How many slots the connector tasks can use: one each, and one more for partitions with a query if there are others."""
    topics = [{topic for topic, _ in assigned_partitions(config)} for config in tasks.values()]
    if settings.copy.query is None:
        return sum(map(bool, topics))
    asks = {topic: settings.asks(topic) for topic in set().union(*topics)}
    kinds = [{asks[topic] for topic in each} for each in topics]
    plain, queried = sum(False in each for each in kinds), sum(True in each for each in kinds)
    return max(plain, queried) if is_roomy else plain + queried


def unplaced(
    name: str, settings: SourceSettings, tasks: Mapping[int, Mapping[str, str]]
) -> list[TaskPlan]:
    """Plans that tell which partitions wait for a slot, of tasks that cannot be planned; they have no positions."""
    return [
        TaskPlan(
            flow=name,
            index=task,
            stamp=0,
            source=settings.source,
            target=settings.target,
            store=settings.store,
            settings=settings.copy,
            partitions=tuple(
                PartitionPlan(topic, number, settings.remote(topic), task=task)
                for topic, number in assigned_partitions(config)
            ),
        )
        for task, config in tasks.items()
    ]


def _caps(
    settings: SourceSettings,
    tasks: Mapping[int, Mapping[str, str]],
    packed: Sequence[Sequence[PartitionPlan]],
    source: Cluster,
) -> tuple[int, dict[str, int]]:
    """What this worker may read of the flow's cap and of those of its topics: other workers have the other tasks."""
    config = settings.config.rate_limits
    total = max(map(task_count, tasks.values()), default=0)
    flow = part_of_cap(config.flow, len(tasks), total)
    if not config.topics:
        return flow, {}
    held: dict[str, int] = {}
    for parts in packed:
        for part in parts:
            held[part.topic] = held.get(part.topic, 0) + 1
    known = source.topics
    counts = {topic: len(known[topic].partitions) if topic in known else 0 for topic in held}
    return flow, {t: part_of_cap(config.topic(t), n, counts[t]) for t, n in held.items()}


def _await_width(settings: SourceSettings, topics: Iterable[str], target: Cluster) -> None:
    """Until the copies are as wide as asked for, as they are when the connector has just made them so; else as they are."""
    names = {
        settings.written_topic(topic): settings.config.wanted_partitions(topic) for topic in topics
    }
    counts = {name: count or 0 for name, count in names.items() if name is not None}
    deadline = time.monotonic() + _WIDTH_S
    while True:
        target.refresh(counts)
        known = target.topics
        narrow = [n for n, c in counts.items() if n in known and len(known[n].partitions) < c]
        if not narrow or time.monotonic() > deadline:
            return
        time.sleep(0.05)


def _compacted(source: Cluster, topics: Sequence[str]) -> set[str]:
    """The compacted ones, and those that may be for all we are allowed to know: that costs a new epoch at each start, no more."""
    found = topic_configs.describe(source, topics)
    by_code: dict[int, list[str]] = {}
    for name, error in found.errors.items():
        by_code.setdefault(error.code, []).append(name)
    for names in by_code.values():
        others = f" The same holds for {len(names) - 1} more topic(s)." if len(names) > 1 else ""
        log.warning(
            "%s Topic %s is copied as a compacted topic is: with a new numbering at each start.%s",
            found.errors[names[0]],
            names[0],
            others,
        )
    compacted = {name for name, rows in found.configs.items() if metadata.is_compacted(rows)}
    return compacted | found.errors.keys()


def _partitions(
    settings: SourceSettings,
    tasks: Mapping[int, Mapping[str, str]],
    source: Cluster,
    target: Cluster,
) -> list[list[PartitionPlan]]:
    assigned = {task: assigned_partitions(config) for task, config in sorted(tasks.items())}
    topics = sorted({topic for partitions in assigned.values() for topic, _ in partitions})
    source.refresh(topics)
    compacted = _compacted(source, [topic for topic in topics if topic in source.topics])
    placed = [topic for topic in topics if settings.config.wanted_partitions(topic) is not None]
    if placed:
        _await_width(settings, placed, target)
    return [
        [
            PartitionPlan(
                topic,
                number,
                settings.remote(topic),
                topic in compacted,
                task,
                settings.places(topic, source, target),
                queried=settings.asks(topic),
                width=len(source.topics[topic].partitions) if topic in source.topics else 0,
            )
            for topic, number in partitions
        ]
        for task, partitions in assigned.items()
    ]
