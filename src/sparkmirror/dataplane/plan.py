"""What a Spark task is told to do: task configs in, one picklable plan per Spark task out."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sparkmirror.formats.position import Position
from sparkmirror.kafka.compression import OpeningLimit
from sparkmirror.kafka.fetch import FetchLimits, TopicPartition
from sparkmirror.kafka.settings import ClientSettings
from sparkmirror.transforms.chain import TransformChain

from .links.address import Driver
from .positions import StoreAddress
from .query.terms import SQL, BadRecords, QuerySettings


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """One partition to copy."""

    topic: str
    partition: int
    remote: str
    compacted: bool = False
    task: int = 0
    """Index of the connector task that owns it (several may share a Spark task)."""
    places: int = 0
    """The number of partitions of the target on which its records are placed by their keys; 0: they stay in their own."""
    remote_partition: int = -1
    """Where records go, if that is another partition (-1: it is not)."""
    queried: bool = False
    """Whether its records pass through the query."""
    width: int = 0
    """With a query: the number of partitions on which records are placed that it gives none."""

    @property
    def at(self) -> int:
        """The partition on the target."""
        return self.partition if self.remote_partition < 0 else self.remote_partition

    @property
    def key(self) -> TopicPartition:
        return (self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True)
class CopySettings:
    """How to copy: limits and intervals, the same for all tasks of a flow."""

    fetch: FetchLimits = field(default_factory=FetchLimits)
    reset: str = "earliest"
    """Where a partition without a position begins: earliest or latest."""
    recreated_target: str = "fail"
    """What to do when a remote topic was deleted and created again: fail, restart or continue."""
    exactly_once: bool = True
    """Whether the target holds the numbers of records against those before; False: records are sent without numbers."""
    flush_interval: float = 1.0
    progress_interval: float = 1.0
    epoch: float = 600.0
    max_in_flight: int = 5
    max_request_bytes: int = 8 << 20
    buffer_bytes: int = 24 << 20
    partition_buffer_bytes: int = 12 << 20
    opened_bytes: int = 64 << 20
    """Of opened records a partition has no more on their way before it opens the next batch."""
    opening: OpeningLimit = OpeningLimit()  # noqa: RUF009 - it cannot be changed
    """How large a batch may become when it is opened."""
    merge_bytes: int = 256 << 10
    offset_lag_max: int = 100
    offset_syncs_topic: str = ""
    """Empty: no offset syncs."""
    offset_syncs_at_source: bool = True
    offset_map_topic: str = ""
    """Empty: no offset map."""
    progress_topic: str = ""
    """Empty: no progress records."""
    transforms: TransformChain | None = None
    """What records pass through on their way; partitions that it does not touch are copied batch by batch."""
    replication_factor: int = -1
    """Of topics that transforms name record by record, which the task creates (-1: the brokers' own default)."""
    may_lower_factor: bool = True
    """Whether they get fewer replicas on a cluster that has not so many brokers."""
    query: QuerySettings | None = None
    """What records of partitions that are `queried` pass through, behind the transforms."""
    bad: BadRecords = field(default_factory=BadRecords)
    """What is done with those on which it raises; or one that was given before, and has some left."""
    reserved: frozenset[str] = frozenset()
    """Topics of the target in which the worker keeps its state: no record is written to them, whatever names them."""
    remote_name: Callable[[str], str] | None = None
    """What a topic that a query names, also one that was given before, is called on the target; None: by its name."""


FLOW = ""
"""In place of a topic: the limit of the whole flow."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The most that the Spark tasks of a job read together."""

    topic: str
    """A source topic, or `FLOW`."""
    bytes: int
    """Per second, of record batches as the source has them."""
    tasks: int = 1
    """How many Spark tasks share it; each begins with an equal part."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One Spark task: its partitions and all that it needs to reach them."""

    flow: str
    index: int
    stamp: int
    source: ClientSettings
    target: ClientSettings
    store: StoreAddress
    settings: CopySettings
    partitions: tuple[PartitionPlan, ...]
    positions: tuple[tuple[TopicPartition, Position | None], ...] = ()
    read_to: tuple[tuple[int, int], ...] = ()
    driver: Driver | None = None
    """Who the task is linked to, and asks for queries; set when the plan is submitted."""
    job: uuid.UUID = field(default_factory=uuid.uuid4)
    """The job that it is a task of; set when the plan is submitted."""
    store_cluster: ClientSettings | None = None
    """Where the positions are, if not on the target: the cluster that the Connect worker itself uses."""
    limits: tuple[RateLimit, ...] = ()
    """What counts for its partitions."""

    @property
    def clients(self) -> tuple[ClientSettings, ...]:
        """The clusters that it connects to."""
        store = () if self.store_cluster is None else (self.store_cluster,)
        return (self.source, self.target, *store)

    @property
    def needs_queries(self) -> bool:
        """Whether records of it pass through a query, or did so when its positions were written."""
        if self.settings.query is not None and any(part.queried for part in self.partitions):
            return True
        return any(
            position is not None and SQL in (position.transforms or "")
            for _, position in self.positions
        )

    @property
    def gives_way(self) -> bool:
        """Whether all of it has a query, so that it leaves the processor to others."""
        return all(part.queried for part in self.partitions)


def assign(partitions: Sequence[TopicPartition], tasks_max: int) -> list[list[TopicPartition]]:
    """MM2's rule: partition i of the list goes to task i mod n, with n = min(tasks.max, partitions)."""
    count = min(tasks_max, len(partitions))
    return [list(partitions[index::count]) for index in range(count)]


def positions_of(
    partitions: Sequence[PartitionPlan], positions: Mapping[TopicPartition, Position | None]
) -> tuple[tuple[TopicPartition, Position | None], ...]:
    return tuple((part.key, positions.get(part.key)) for part in partitions)
