"""A query tried on real records: a flow and a topic in; what becomes of each record out. Nothing is written.

Records pass through the transforms and the query as in a copy: the same routing, with a desk and an engine in this process.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sparkmirror.connectors.source_settings import SourceSettings
from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.dataplane.query.describing import described
from sparkmirror.dataplane.query.desk import Desk
from sparkmirror.dataplane.query.routing import QueryRouting
from sparkmirror.dataplane.shape import Shape
from sparkmirror.dataplane.stream import Piece
from sparkmirror.errors import ConfigError, SparkError
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.policy.filters import should_replicate_topic
from sparkmirror.spark.session import SparkSession
from sparkmirror.transforms.record import ConnectRecord

from .preview_flows import QueryFlow
from .preview_sample import Sample

_MOST_NAMED = 10


class Fate(StrEnum):
    """What becomes of a record."""

    KEPT = "kept"
    DROPPED = "dropped"
    """By the query."""
    FILTERED = "filtered"
    """Dropped by the transforms, before the query."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Row:
    """One record, before and after."""

    before: ConnectRecord
    """In its source topic and partition."""
    fate: Fate
    after: ConnectRecord | None = None
    """As it would be written, in its target topic and partition."""
    message: str = ""
    """Why it failed."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a query makes of some records."""

    flow: str
    topic: str
    remote: str
    """The topic that a record goes to if the query names none."""
    sql: str
    columns: tuple[tuple[str, str], ...]
    """The names and types that the query gives."""
    plan: str
    rows: Sequence[Row] = field(default_factory=tuple)
    tolerates: bool = False
    """Whether the flow would go on without records that fail."""

    def count(self, *fates: Fate) -> int:
        return sum(row.fate in fates for row in self.rows)


@dataclass(frozen=True, slots=True)
class Wish:
    """Which records to try which query on."""

    topic: str | None = None
    sql: str | None = None
    """Another query than the flow's."""
    limit: int = 20
    oldest: bool = False
    patience: float = 30.0
    """Seconds for a cluster to answer."""


def preview(flow: QueryFlow, wish: Wish) -> Preview:
    """Try it; QueryRefused with what Spark says if the query cannot be run."""
    settings = flow.settings(wish.sql)
    query = settings.copy.query
    if query is None:
        raise ConfigError(f"{flow.name}: there is no query.", "Set transform.sql, or give --sql.")
    spark = SparkSession(flow.spark)
    try:
        threading.Thread(target=_start_ahead, args=(spark,), daemon=True).start()
        with _clusters(settings) as (source, target):
            deadline = time.monotonic() + wish.patience
            source.retrying(lambda: source.refresh(None), deadline)
            topic = _topic(flow.name, settings, source, wish)
            sample = Sample(source, topic, settings.copy.fetch).read(wish.limit, oldest=wish.oldest)
            plans = _plans(settings, topic, source, target, deadline)
        spark.start()
        known = described(spark.queries, query.terms, query.limits.memory)
        desk = Desk(spark.queries.driver, flow.name, replace(query.limits, interval=0.0))
        try:
            rows = [
                row
                for number, pieces in sample.items()
                for row in _tried(settings, plans[number], pieces, desk)
            ]
        finally:
            desk.close()
    finally:
        spark.stop()
    return Preview(
        flow=flow.name,
        topic=topic,
        remote=settings.remote(topic),
        sql=query.terms.sql,
        columns=known.columns,
        plan=known.plan,
        rows=rows,
        tolerates=settings.copy.bad.are_tolerated,
    )


def _start_ahead(spark: SparkSession) -> None:
    """While records are read; whoever needs Spark will say what is wrong, if something is."""
    with contextlib.suppress(SparkError):
        spark.start()


@contextlib.contextmanager
def _clusters(settings: SourceSettings) -> Iterator[tuple[Cluster, Cluster]]:
    source, target = Cluster(settings.source), Cluster(settings.target)
    try:
        yield source, target
    finally:
        source.close()
        target.close()


# -- what to try it on ----------------------------------------------------------------------------


def _topic(flow: str, settings: SourceSettings, source: Cluster, wish: Wish) -> str:
    """The topic that is meant; ConfigError if it is not clear, or the query is not for it."""
    copied = sorted(_copied(settings, source))
    asked = [topic for topic in copied if settings.asks(topic)]
    if wish.topic is not None:
        source.topic(wish.topic)  # an error if it is not there
        if wish.topic not in copied:
            raise ConfigError(
                f"Flow {flow} does not copy topic {wish.topic}.",
                "Look at topics and topics.exclude, or name another with --topic.",
            )
        if wish.topic not in asked and wish.sql is None:
            raise ConfigError(
                f"Records of topic {wish.topic} do not pass through the query of flow {flow}.",
                "Look at transform.topics, or give a query with --sql.",
            )
        return wish.topic
    if len(asked) == 1:
        return asked[0]
    if not asked:
        raise ConfigError(
            f"Flow {flow} copies no topic whose records pass through the query.",
            "Look at topics, topics.exclude and transform.topics.",
        )
    more = f" and {len(asked) - _MOST_NAMED} more" if len(asked) > _MOST_NAMED else ""
    raise ConfigError(
        f"The query of flow {flow} is for several topics: {', '.join(asked[:_MOST_NAMED])}{more}.",
        "Say with --topic which one to try it on.",
    )


def _copied(settings: SourceSettings, source: Cluster) -> Iterator[str]:
    config = settings.config
    chosen = config.topic_filter()
    for name, info in source.topics.items():
        if not info.internal and should_replicate_topic(
            config.policy, chosen, config.heartbeats_replication, config.target_alias, name
        ):
            yield name


def _plans(
    settings: SourceSettings, topic: str, source: Cluster, target: Cluster, deadline: float
) -> dict[int, PartitionPlan]:
    """The plans of its partitions, as a copy task would get them; the target is asked only where its partitions count."""
    written = settings.written_topic(topic)
    if settings.config.wanted_partitions(topic) is not None and written is not None:
        target.retrying(lambda: target.refresh([written]), deadline)
    places = settings.places(topic, source, target)
    numbers = source.topic(topic).partitions
    return {
        number: PartitionPlan(
            topic,
            number,
            settings.remote(topic),
            places=places,
            queried=True,
            width=len(numbers),
        )
        for number in numbers
    }


# -- trying it ------------------------------------------------------------------------------------


def _tried(
    settings: SourceSettings, plan: PartitionPlan, pieces: Sequence[Piece], desk: Desk
) -> list[Row]:
    """What becomes of the records of one partition."""
    routing = QueryRouting(plan, Shape.of(plan, settings.copy), settings.copy, desk)
    portion = routing.open(pieces)
    if not portion.rows:
        return rows_of(plan, pieces, {}, {}, frozenset())
    outcome = routing.outcome(portion, desk.ask(routing.prepared, portion.rows))
    written = {
        offset: ConnectRecord(*target, offset, row.timestamp, row.key, row.value, list(row.headers))
        for target, piece in outcome.parts
        for offset, row in piece.records_with_offsets()
    }
    failed = {bad.record.offset: bad.message for bad in outcome.bad}
    asked = frozenset(row.offset for row in portion.rows)
    return rows_of(plan, pieces, written, failed, asked)


def rows_of(
    plan: PartitionPlan,
    pieces: Sequence[Piece],
    written: dict[int, ConnectRecord],
    failed: dict[int, str],
    asked: frozenset[int],
) -> list[Row]:
    """The records of some pieces with what became of them, by their offsets."""
    found = []
    for piece in pieces:
        for offset, row in piece.records_with_offsets():
            before = ConnectRecord(
                plan.topic,
                plan.partition,
                offset,
                row.timestamp,
                row.key,
                row.value,
                list(row.headers),
            )
            if offset in failed:
                found.append(Row(before, Fate.FAILED, message=failed[offset]))
            elif offset in written:
                found.append(Row(before, Fate.KEPT, written[offset]))
            else:
                found.append(Row(before, Fate.DROPPED if offset in asked else Fate.FILTERED))
    return found
