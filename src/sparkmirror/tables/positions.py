"""The table `positions`: the offsets topic of a flow's worker in, how far each source partition is copied out."""

from __future__ import annotations

from collections.abc import Iterator

from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.errors import ConfigError
from sparkmirror.formats.position import Position
from sparkmirror.kafka.fetch import TopicPartition

from .asking import has_topic, retried
from .columns import Columns, Row
from .flows import Flow

COLUMNS: Columns = (
    ("flow", "STRING"),
    ("connector", "STRING"),
    ("topic", "STRING"),
    ("partition", "INT"),
    ("next_offset", "BIGINT"),
    ("remote_topic", "STRING"),
    ("remote_partition", "INT"),
    ("target_offset", "BIGINT"),
    ("producer_id", "BIGINT"),
    ("producer_epoch", "INT"),
    ("sequence", "BIGINT"),
    ("source_topic_id", "STRING"),
    ("target_topic_id", "STRING"),
)


def rows(flow: Flow) -> Iterator[Row]:
    """A row for each source partition and target partition that its records go to."""
    if not flow.has_positions:
        raise ConfigError(
            f"Flow {flow.name}: a connector's file does not say where its worker keeps positions.",
            "Name the worker's file with option worker.",
        )
    for key, position in sorted(read_positions(flow).items()):
        for place in _places(flow, key, position):
            yield (flow.name, flow.settings.store.connector, *key, position.next_offset, *place)


def read_positions(flow: Flow) -> dict[TopicPartition, Position]:
    """The positions in force; none if nothing has been copied yet."""
    address = flow.settings.store
    with flow.worker_cluster() as cluster:
        if not has_topic(cluster, address.topic):
            return {}
        store = PositionStore(cluster, address)
        retried(cluster, store.catch_up)
        return dict(store.positions())


def _places(flow: Flow, key: TopicPartition, position: Position) -> Iterator[Row]:
    """What a position says of each target partition: the columns from `remote_topic` on."""
    numbering = position.numbering
    if numbering is None:  # set by a person, or by a Java worker
        yield (flow.settings.written_topic(key[0]), None, None, None, None, None, None, None)
        return
    owner = numbering.producer_id, numbering.epoch
    source_id = position.source_id or None
    if position.transforms is None:
        where = flow.settings.remote(key[0]), key[1], position.target_offset
        yield (*where, *owner, position.sequence, source_id, position.target_id or None)
    elif not position.targets:  # no record has gone anywhere yet
        yield (None, None, None, *owner, None, source_id, None)
    for target in position.targets:
        to = target.topic, target.partition, target.target_offset
        yield (*to, *owner, target.sequence, source_id, target.target_id or None)
