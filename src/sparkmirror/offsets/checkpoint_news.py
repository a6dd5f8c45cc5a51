"""Which checkpoints say something new of the topics that the target has now: translated offsets in, checkpoints to write out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import NamedTuple, Protocol

from sparkmirror.formats.mirror import Checkpoint
from sparkmirror.kafka.cluster import NO_TOPIC_ID
from sparkmirror.kafka.fetch import TopicPartition

from .checkpoints import CheckpointStore, Dated, is_more_recent
from .target_topics import NO_END, Seen, TargetTopics, same_topic


class Origin(Protocol):
    """The translator, as far as it knows which topics its answers are of."""

    def target_id(self, remote: str, partition: int) -> bytes | None:
        """The id of the target's topic that translations are of: zero if it is not known, None if they are of several."""

    def is_exact(self, remote: str, partition: int, upstream: int) -> bool:
        """Whether it is known for sure what an offset of the source is there."""

    def forget(self, recreated: Mapping[str, Seen]) -> None:
        """These topics were created again: forget what may be of the old ones, which were last seen then."""


class News(NamedTuple):
    """A checkpoint to be written."""

    checkpoint: Checkpoint
    topic_id: bytes
    outdated: int = -1
    """The downstream offset of the last checkpoint, if that is of a topic that is gone; else -1."""


class Verdict(Enum):
    """What a checkpoint says beside the last one."""

    NOTHING = "nothing new"
    SAME = "the last one holds"
    NEW = "something new"
    CORRECTION = "the last one is wrong"


def judged(new: Dated, last: Dated | None, *, is_exact: bool, end: int) -> Verdict:
    """Compare a checkpoint, of the topic that is there now, with the last one; `end` is where the log ends.

    Downstream offsets only go forward within one topic. Where it is not known which topic the last checkpoint is of, it is wrong
    if its offset is beyond the end of the log, or if the offset map translates a later offset to an earlier one.
    """
    if last is None:
        return Verdict.NEW
    now, then = new.checkpoint, last.checkpoint
    is_behind = now.downstream_offset < then.downstream_offset
    if is_of_other_topic(new, last):
        is_same = now.downstream_offset == then.downstream_offset and not is_more_recent(now, then)
        return Verdict.SAME if is_same else Verdict.CORRECTION
    if is_behind and last.topic_id in (None, NO_TOPIC_ID):
        is_sure = is_exact and now.upstream_offset >= then.upstream_offset
        if is_sure or then.downstream_offset > end:
            return Verdict.CORRECTION
    if is_more_recent(now, then):
        return Verdict.NEW
    return Verdict.NOTHING if is_behind else Verdict.SAME


def judged_by_time(new: Dated, last: Dated | None) -> Verdict:
    """The same of a checkpoint that was found by time: one that goes back is wanted so."""
    if last is None:
        return Verdict.NEW
    if new.checkpoint.downstream_offset == last.checkpoint.downstream_offset:
        return Verdict.SAME
    return Verdict.CORRECTION if is_of_other_topic(new, last) else Verdict.NEW


def is_of_other_topic(new: Dated, last: Dated) -> bool:
    """Whether two checkpoints are known to be of different topics."""
    known = new.topic_id, last.topic_id
    return None not in known and not same_topic(new.topic_id or b"", last.topic_id or b"")


class CheckpointNews:
    """Compares translations with the last checkpoints, and with the target.

    Invariant: news is of the topic that was on the target at the last look, by the ids in the offset map. Where the map knows no
    id (the target has none, or MirrorMaker 2 copies), news is not beyond the end of the log.
    """

    def __init__(self, store: CheckpointStore, topics: TargetTopics) -> None:
        self._store = store
        self._topics = topics

    def of(
        self, found: Iterable[Checkpoint], by_time: Iterable[Dated], origin: Origin
    ) -> list[News]:
        """What is to be written; last checkpoints that hold as they are get confirmed in the store."""
        unsettled = [*self._unsettled(found, origin)]
        unsettled += [dated for dated in by_time if not self._is_settled(dated)]
        self._topics.look({dated.checkpoint.topic for dated in unsettled})
        recreated = self._topics.take_recreated()
        if recreated:
            origin.forget(recreated)
        for topic, seen in recreated.items():
            self._store.outdate(topic, seen.topic_id)
        there = [dated for dated in unsettled if self._is_there(dated, recreated)]
        ends = self._topics.ends(_key(dated) for dated in there if self._needs_end(dated))
        return list(self._judged(there, ends, origin))

    def _unsettled(self, found: Iterable[Checkpoint], origin: Origin) -> Iterator[Dated]:
        """Those that are not just what the last ones say."""
        ids: dict[TopicPartition, bytes | None] = {}
        for checkpoint in found:
            key = checkpoint.topic, checkpoint.partition
            if key not in ids:
                ids[key] = origin.target_id(*key)
            dated = Dated(checkpoint, ids[key])
            if dated.topic_id is not None and not self._is_settled(dated):
                yield dated

    def _is_settled(self, new: Dated) -> bool:
        last = self._store.dated(new.checkpoint.group, _key(new))
        if last is None or last.topic_id is None:
            return False
        verdict = (
            judged_by_time(new, last)
            if new.checkpoint.is_by_time
            else judged(new, last, is_exact=False, end=NO_END)
        )
        is_doubted = NO_TOPIC_ID in (new.topic_id, last.topic_id) and verdict is Verdict.NOTHING
        is_new_topic = is_of_other_topic(new, last)
        return verdict in (Verdict.NOTHING, Verdict.SAME) and not is_doubted and not is_new_topic

    def _is_there(self, new: Dated, recreated: Collection[str]) -> bool:
        """Whether the topic that it is of is the one on the target, as far as that can be told."""
        current = self._topics.id_of(new.checkpoint.topic)
        if current is None or new.topic_id is None:
            return False
        if new.topic_id == NO_TOPIC_ID and new.checkpoint.topic in recreated:
            return False
        return same_topic(new.topic_id, current)

    def _needs_end(self, new: Dated) -> bool:
        last = self._store.dated(new.checkpoint.group, _key(new))
        is_unsure = last is not None and last.topic_id in (None, NO_TOPIC_ID)
        return new.topic_id == NO_TOPIC_ID or is_unsure

    def _judged(
        self, found: Iterable[Dated], ends: dict[TopicPartition, int], origin: Origin
    ) -> Iterator[News]:
        for new in found:
            group, key = new.checkpoint.group, _key(new)
            if self._may_be_beyond(new, ends):
                continue
            topic_id = self._resolved(new)
            last = self._store.dated(group, key)
            now = Dated(new.checkpoint, topic_id)
            verdict = self._verdict(now, last, ends.get(key, NO_END), origin)
            if verdict is Verdict.SAME:
                self._store.confirm(group, key, topic_id)
            elif verdict is Verdict.NEW or last is None:
                yield News(new.checkpoint, topic_id)
            elif verdict is Verdict.CORRECTION:
                yield News(new.checkpoint, topic_id, last.checkpoint.downstream_offset)

    def _may_be_beyond(self, new: Dated, ends: dict[TopicPartition, int]) -> bool:
        """Whether an offset of which nobody knows what topic it is of may be beyond the end of the log."""
        is_unsure = new.topic_id == NO_TOPIC_ID
        return is_unsure and new.checkpoint.downstream_offset > ends.get(_key(new), -1)

    def _resolved(self, new: Dated) -> bytes:
        """The id of the topic that it is of: the translator's, else that of the topic that is there."""
        if new.topic_id is not None and new.topic_id != NO_TOPIC_ID:
            return new.topic_id
        return self._topics.id_of(new.checkpoint.topic) or NO_TOPIC_ID

    def _verdict(self, new: Dated, last: Dated | None, end: int, origin: Origin) -> Verdict:
        c = new.checkpoint
        if c.is_by_time:
            return judged_by_time(new, last)
        is_behind = last is not None and c.downstream_offset < last.checkpoint.downstream_offset
        is_exact = is_behind and origin.is_exact(c.topic, c.partition, c.upstream_offset)
        return judged(new, last, is_exact=is_exact, end=end)


def _key(dated: Dated) -> TopicPartition:
    return dated.checkpoint.topic, dated.checkpoint.partition
