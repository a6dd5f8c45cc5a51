"""The table `groups`: the checkpoints topic of a flow in, the last checkpoint of each group and partition out."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from sparkmirror.offsets.checkpoint_reader import CheckpointReader
from sparkmirror.offsets.checkpoints import Naming
from sparkmirror.offsets.internal_topic import InternalTopic

from .asking import has_topic, retried
from .columns import Columns, Row
from .flows import Flow

COLUMNS: Columns = (
    ("flow", "STRING"),
    ("group", "STRING"),
    ("topic", "STRING"),
    ("remote_topic", "STRING"),
    ("partition", "INT"),
    ("upstream_offset", "BIGINT"),
    ("downstream_offset", "BIGINT"),
    ("metadata", "STRING"),
)


def rows(flow: Flow) -> Iterator[Row]:
    """A row for each group and partition of a remote topic; none where no checkpoint connector has written yet."""
    config = flow.settings.config
    with flow.target() as target:
        if not has_topic(target, config.checkpoints_topic):
            return
        reader = CheckpointReader(InternalTopic(target, config.checkpoints_topic))
        retried(target, lambda: reader.read(lambda: False))
    topic_of = cache(lambda remote: _source_topic(flow, remote))
    for found in reader.checkpoints:
        upstream = None if found.is_by_time else found.upstream_offset
        offsets = upstream, found.downstream_offset
        where = topic_of(found.topic), found.topic, found.partition
        yield (flow.name, found.group, *where, *offsets, found.metadata)


def _source_topic(flow: Flow, remote: str) -> str | None:
    """What a topic of the target is called on the source; None if the name does not tell."""
    config, copy = flow.settings.config, flow.settings.copy
    if copy.transforms is not None or copy.query is not None:  # these may have chosen the name
        return None
    naming = Naming(config.policy, config.source_alias, config.target_alias)
    upstream = config.policy.upstream_topic(remote)
    back = config.policy.format_remote_topic(config.target_alias, remote)
    for topic in (upstream, back):
        if topic is not None and naming.downstream(topic) == remote:
            return topic
    return None
