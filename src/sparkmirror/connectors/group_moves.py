"""Moves consumer groups on the target: what each should have committed in, commits for groups without members out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.offsets.checkpoint_news import News
from sparkmirror.offsets.checkpoints import is_behind, not_there_yet, offsets_to_sync
from sparkmirror.offsets.groups import Answers, GroupOffset, Groups, Offsets, TopicPartition
from sparkmirror.offsets.homecoming import Moves
from sparkmirror.offsets.target_topics import TargetTopics

log = logging.getLogger(__name__)


class GroupMoves:
    """Moves groups of the target.

    Invariants: a group is moved only while it has no members, and only to an offset that is in the log of the topic that its
    checkpoint is of. It is moved back only where nobody can have read so far, or where this task or one before it had moved it to
    an offset of a topic that is gone.
    """

    def __init__(
        self,
        groups: Groups,
        topics: TargetTopics,
        is_current: Callable[[str, TopicPartition], bool],
        label: str,
    ) -> None:
        """`is_current` tells whether a group's last checkpoint is of the topic that was on the target at the last look."""
        self._groups = groups
        self._topics = topics
        self._is_current = is_current
        self._label = label

    def move(self, wanted: Moves) -> list[str]:
        """Move these groups; gives those that are where they are to be, or further."""
        answers = self._without_members(wanted)
        found = answers.found
        left = {g: not_there_yet(wanted[g], committed) for g, committed in found.items()}
        keys = {key for moves in left.values() for key in moves}
        self._topics.look({topic for topic, _ in keys})
        ends = self._topics.ends(keys)
        due = {
            group: moves
            for group, committed in found.items()
            if (moves := self._due(group, left[group], committed, ends))
        }
        done = self._groups.commit(due)
        tell_failed(self._label, answers.failed | _unexpected(done.failed))
        if done.found:
            log.info(
                "%s: %d group(s) moved on the target, %d offset(s).",
                self._label,
                len(done.found),
                sum(done.found.values()),
            )
        return [
            group
            for group, committed in found.items()
            if (group not in due or group in done.found)
            and not _is_held_back(left[group], due.get(group, {}), committed)
        ]

    def _due(
        self,
        group: str,
        moves: Mapping[TopicPartition, GroupOffset],
        committed: Offsets,
        ends: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, GroupOffset]:
        current = {key: offset for key, offset in moves.items() if self._is_current(group, key)}
        return offsets_to_sync(current, committed, ends)

    def correct(self, news: Collection[News]) -> set[str]:
        """Move groups that are where checkpoints had led them in topics that are gone; gives those for which that failed.

        Done before the checkpoints are written: whoever comes later does not know the old ones any more.
        """
        wrong: dict[str, dict[TopicPartition, News]] = {}
        for one in news:
            c = one.checkpoint
            if one.outdated > c.downstream_offset:
                wrong.setdefault(c.group, {})[c.topic, c.partition] = one
        answers = self._without_members(wrong)
        due = {
            group: moves
            for group, committed in answers.found.items()
            if (moves := _corrections(wrong[group], committed))
        }
        done = self._groups.commit(due)
        failed = answers.failed | _unexpected(done.failed)
        tell_failed(self._label, failed)
        if done.found:
            log.info(
                "%s: %d group(s) on the target moved back, which were at offsets of topics that were deleted and created again.",
                self._label,
                len(done.found),
            )
        return {group for group, error in failed.items() if error.retriable}

    def _without_members(self, groups: Collection[str]) -> Answers[Offsets]:
        """What these groups have committed, without those that have members."""
        active = self._groups.active() if groups else set()
        return some(self._groups.committed(group for group in groups if group not in active))


def _is_held_back(
    left: Mapping[TopicPartition, GroupOffset],
    due: Mapping[TopicPartition, GroupOffset],
    committed: Offsets,
) -> bool:
    """Whether a group is not where it is to be, though nothing is due: the topic must be looked at again."""
    behind = (key for key, offset in left.items() if is_behind(committed.get(key), offset))
    return any(key not in due for key in behind)


def _corrections(
    news: Mapping[TopicPartition, News], committed: Offsets
) -> dict[TopicPartition, GroupOffset]:
    """Where a group is just where the outdated checkpoint was: no consumer has put it there, since they name a leader epoch."""
    return {
        key: GroupOffset(one.checkpoint.downstream_offset, one.checkpoint.metadata)
        for key, one in news.items()
        if (there := committed.get(key)) is not None
        and there.offset == one.outdated
        and there.leader_epoch < 0
    }


def some(answers: Answers[Offsets]) -> Answers[Offsets]:
    """The same, unless not one group answered: then what the first one failed with is raised."""
    if answers.failed and not answers.found:
        raise next(iter(answers.failed.values()))
    return answers


def tell_failed(label: str, failed: Mapping[str, KafkaError]) -> None:
    """One line for each kind of error, however many groups have it."""
    kinds: dict[str, list[KafkaError]] = {}
    for error in failed.values():
        kind = error.name if isinstance(error, BrokerError) else type(error).__name__
        kinds.setdefault(kind, []).append(error)
    for errors in kinds.values():
        others = f" ({len(errors) - 1} other group(s) likewise.)" if len(errors) > 1 else ""
        log.warning("%s: %s%s", label, errors[0], others)


def _unexpected(failed: Mapping[str, KafkaError]) -> dict[str, KafkaError]:
    """Without groups that somebody joined in this very moment: the broker refuses to move those, as it should."""
    return {
        group: error
        for group, error in failed.items()
        if not (isinstance(error, BrokerError) and error.code == messages.UNKNOWN_MEMBER_ID)
    }
