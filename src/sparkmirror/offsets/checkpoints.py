"""Which checkpoints are written and which group offsets follow from them: committed offsets in, rules applied, what is due out.

The rules are those of MirrorMaker 2's `MirrorCheckpointTask` and `CheckpointStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from sparkmirror.formats.mirror import Checkpoint
from sparkmirror.policy.naming import ReplicationPolicy

from .groups import GroupOffset, Offsets, TopicPartition
from .translator import Translator


@dataclass(frozen=True, slots=True)
class Naming:
    """What a source topic is called on the target."""

    policy: ReplicationPolicy
    source_alias: str
    target_alias: str

    def downstream(self, topic: str) -> str:
        """A topic that came from the target goes by its own name there; any other is a remote topic."""
        if self.comes_from_target(topic):
            return self.policy.original_topic(topic)
        return self.policy.format_remote_topic(self.source_alias, topic)

    def comes_from_target(self, topic: str) -> bool:
        return self.policy.topic_source(topic) == self.target_alias

    def leads_home(self, downstream: str) -> bool:
        """Whether a topic of the target is one whose copies on the source go by another name: an original."""
        copy = self.policy.format_remote_topic(self.target_alias, downstream)
        return self.comes_from_target(copy) and self.downstream(copy) == downstream


def translated(
    group: str,
    offsets: Offsets,
    is_wanted: Callable[[str], bool],
    downstream_topic: Callable[[str], str],
    translator: Translator,
) -> Iterator[Checkpoint]:
    """The checkpoints that a group's committed offsets give, as far as they can be translated."""
    for (topic, partition), committed in offsets.items():
        if committed is None or not is_wanted(topic):
            continue
        downstream = translator.translate(topic, partition, committed.offset)
        if downstream is not None and downstream >= 0:
            yield Checkpoint(
                group,
                downstream_topic(topic),
                partition,
                committed.offset,
                downstream,
                committed.metadata,
            )


def is_more_recent(new: Checkpoint, last: Checkpoint | None) -> bool:
    """Whether a checkpoint says something new: forward downstream, or anywhere if the group has rewound upstream.

    One that was found by time gives way to an exact one as soon as that is no step back.
    """
    return (
        last is None
        or new.upstream_offset < last.upstream_offset
        or new.downstream_offset > last.downstream_offset
        or (
            last.is_by_time
            and not new.is_by_time
            and new.downstream_offset == last.downstream_offset
        )
    )


class CheckpointStore:
    """The last checkpoint of each group and downstream partition, of the groups that are one's own.

    Invariant: of a partition whose group does not rewind, downstream offsets never go back.
    """

    def __init__(self, groups: Collection[str]) -> None:
        self._groups = frozenset(groups)
        self._last: dict[str, dict[TopicPartition, Checkpoint]] = {}
        self._by_time: set[tuple[str, str]] = set()

    def put(self, checkpoint: Checkpoint) -> None:
        """It is in the checkpoints topic, and the newest of its kind."""
        if checkpoint.group in self._groups:
            key = (checkpoint.topic, checkpoint.partition)
            known = self._last.setdefault(checkpoint.group, {})
            known[key] = checkpoint
            place = checkpoint.group, checkpoint.topic
            if checkpoint.is_by_time:
                self._by_time.add(place)
            elif place in self._by_time and not any(
                other.is_by_time for (topic, _), other in known.items() if topic == key[0]
            ):
                self._by_time.discard(place)

    def is_news(self, checkpoint: Checkpoint) -> bool:
        """Whether it is to be written."""
        known = self._last.get(checkpoint.group, {})
        return is_more_recent(checkpoint, known.get((checkpoint.topic, checkpoint.partition)))

    def last(self, group: str, topic: str, partition: int) -> Checkpoint | None:
        return self._last.get(group, {}).get((topic, partition))

    def is_by_time(self, group: str, topic: str) -> bool:
        """Whether any of a group's last checkpoints in a (downstream) topic was found by time."""
        return (group, topic) in self._by_time

    @property
    def groups(self) -> list[str]:
        """Those that have checkpoints."""
        return list(self._last)

    def downstream_offsets(
        self, groups: Iterable[str]
    ) -> dict[str, dict[TopicPartition, GroupOffset]]:
        """What each of these groups would have committed on the target."""
        return {
            group: {
                key: GroupOffset(checkpoint.downstream_offset, checkpoint.metadata)
                for key, checkpoint in self._last[group].items()
            }
            for group in groups
        }


def offsets_to_sync(
    wanted: Mapping[TopicPartition, GroupOffset], committed: Offsets
) -> dict[TopicPartition, GroupOffset]:
    """Those of a group's offsets that move it forward on the target, or give it one where it has none."""
    found: dict[TopicPartition, GroupOffset] = {}
    for key, offset in wanted.items():
        there = committed.get(key)
        if there is None or there.offset < offset.offset:
            found[key] = offset
    return found
