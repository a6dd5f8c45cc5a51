"""Which checkpoints are written and which group offsets follow from them: committed offsets in, rules applied, what is due out.

The rules are those of MirrorMaker 2's `MirrorCheckpointTask` and `CheckpointStore`, each for one topic on the target: in a topic
that was created again under the same name the old offsets mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

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


class Dated(NamedTuple):
    """A checkpoint, and the id of the target's topic that its downstream offset is of."""

    checkpoint: Checkpoint
    topic_id: bytes | None
    """Zero where the target has no ids, or does not show them; None: an earlier task wrote it, for which topic is not known."""


class CheckpointStore:
    """The last checkpoint of each group and downstream partition, of the groups that are one's own.

    Invariant: of a partition whose group does not rewind, downstream offsets never go back in one topic.
    """

    def __init__(self, groups: Collection[str]) -> None:
        self._groups = frozenset(groups)
        self._last: dict[str, dict[TopicPartition, Dated]] = {}
        self._by_time: set[tuple[str, str]] = set()

    def put(self, checkpoint: Checkpoint, topic_id: bytes | None = None) -> None:
        """It is in the checkpoints topic, and the newest of its kind."""
        if checkpoint.group in self._groups:
            key = (checkpoint.topic, checkpoint.partition)
            known = self._last.setdefault(checkpoint.group, {})
            known[key] = Dated(checkpoint, topic_id)
            place = checkpoint.group, checkpoint.topic
            if checkpoint.is_by_time:
                self._by_time.add(place)
            elif place in self._by_time and not any(
                other.checkpoint.is_by_time
                for (topic, _), other in known.items()
                if topic == key[0]
            ):
                self._by_time.discard(place)

    def confirm(self, group: str, key: TopicPartition, topic_id: bytes) -> None:
        """The last checkpoint holds in this topic too."""
        known = self._last[group]
        known[key] = Dated(known[key].checkpoint, topic_id)

    def outdate(self, topic: str, topic_id: bytes) -> None:
        """A topic was created again: what earlier tasks wrote of it was of the one that had this id."""
        for known in self._last.values():
            for key, dated in known.items():
                if dated.topic_id is None and key[0] == topic:
                    known[key] = Dated(dated.checkpoint, topic_id)

    def dated(self, group: str, key: TopicPartition) -> Dated | None:
        return self._last.get(group, {}).get(key)

    def last(self, group: str, topic: str, partition: int) -> Checkpoint | None:
        found = self.dated(group, (topic, partition))
        return None if found is None else found.checkpoint

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
                for key, (checkpoint, _) in self._last[group].items()
            }
            for group in groups
        }


def is_behind(there: GroupOffset | None, wanted: GroupOffset) -> bool:
    """Whether a group has committed nothing, or less."""
    return there is None or there.offset < wanted.offset


def not_there_yet(
    wanted: Mapping[TopicPartition, GroupOffset], committed: Offsets
) -> dict[TopicPartition, GroupOffset]:
    """Those of a group's offsets that are not what the group has committed."""
    return {
        key: offset
        for key, offset in wanted.items()
        if (there := committed.get(key)) is None or there.offset != offset.offset
    }


def offsets_to_sync(
    wanted: Mapping[TopicPartition, GroupOffset],
    committed: Offsets,
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, GroupOffset]:
    """Those of a group's offsets that move it forward on the target, or give it one where it has none.

    No group is moved beyond the end of a log, nor where the end is not known: the offset may be of a topic that was there before.
    A group that is beyond the end is moved back: nobody has read so far.
    """
    found: dict[TopicPartition, GroupOffset] = {}
    for key, offset in wanted.items():
        there, end = committed.get(key), ends.get(key, -1)
        is_beyond = there is not None and there.offset > end
        if (is_behind(there, offset) or is_beyond) and offset.offset <= end:
            found[key] = offset
    return found
