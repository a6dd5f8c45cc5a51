"""Moves consumer groups on the target: what each should have committed in, commits for groups without members out."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.offsets.checkpoints import offsets_to_sync
from sparkmirror.offsets.groups import Answers, Groups, Offsets
from sparkmirror.offsets.homecoming import Moves

log = logging.getLogger(__name__)


class GroupMoves:
    """Moves groups of the target.

    Invariant: a group is only ever moved forward, and only while it has no members.
    """

    def __init__(self, groups: Groups, label: str) -> None:
        self._groups = groups
        self._label = label

    def move(self, wanted: Moves) -> list[str]:
        """Move these groups; gives those that are where they are to be, or further."""
        active = self._groups.active() if wanted else set()
        answers = some(self._groups.committed(g for g in wanted if g not in active))
        due = {
            group: moves
            for group, committed in answers.found.items()
            if (moves := offsets_to_sync(wanted[group], committed))
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
        return [group for group in answers.found if group not in due or group in done.found]


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
