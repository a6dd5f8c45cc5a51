"""The table `offset_map`: the offset map of a flow in, ranges of source offsets with their targets out."""

from __future__ import annotations

from collections.abc import Iterator

from sparkmirror.errors import KafkaError
from sparkmirror.formats.offset_map import Place
from sparkmirror.kafka import admin
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.offsets.map_reader import MapTopic
from sparkmirror.offsets.offset_map import OffsetMap
from sparkmirror.offsets.ranges import ranges
from sparkmirror.offsets.target_topics import same_topic

from .asking import has_topic, log_offsets, retried
from .columns import Columns, Row
from .flows import Flow

COLUMNS: Columns = (
    ("flow", "STRING"),
    ("topic", "STRING"),
    ("partition", "INT"),
    ("remote_topic", "STRING"),
    ("remote_partition", "INT"),
    ("source_start", "BIGINT"),
    ("source_end", "BIGINT"),
    ("target_start", "BIGINT"),
    ("step", "INT"),
    ("exact", "BOOLEAN"),
    ("sources", "INT"),
)


def rows(flow: Flow) -> Iterator[Row]:
    """A row for each range; none for partitions that the map does not tell of, and for topics created again since."""
    with flow.target() as target:
        name = flow.settings.copy.offset_map_topic
        if not has_topic(target, name):
            return
        topic = MapTopic(target, name)
        retried(target, topic.load)
        if not topic.is_loaded:  # half of a map leads groups elsewhere
            raise KafkaError(
                f"Topic {name} on {target.settings} was deleted or cut back while it was read.",
                "Read the table again.",
            )
        known = topic.map
        remotes = {(place.remote, place.remote_partition) for place in known.places}
        starts = log_offsets(target, remotes, admin.EARLIEST)
        places = [place for place in sorted(known.places) if _is_current(known, place, target)]
    for place in places:
        remote = place.remote, place.remote_partition
        feeding = known.to_target(*remote)
        for one in ranges(known.places[place], starts.get(remote), known.coverage(*remote)):
            numbers = one.source_start, one.source_end, one.target_start, one.step
            yield (flow.name, *place, *numbers, one.is_exact, len(feeding))


def _is_current(known: OffsetMap, place: Place, target: Cluster) -> bool:
    """Whether the map is of the topic that is on the target now."""
    info = target.topics.get(place.remote)
    return (
        info is not None
        and place.remote_partition in info.partitions
        and same_topic(info.topic_id, known.places[place].ids.target)
    )
