"""Groups that come home: checkpoints of topics whose copies a group reads here in; what it has really read here, once each, out.

The flow that makes the copies moves groups here too. An offset that it gave a group says nothing new at home: committed there,
it would undo what was done with the group at home since (it was rewound, or deleted).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache

from sparkmirror.errors import BrokerError
from sparkmirror.formats.mirror import Checkpoint, MalformedRecord, decode_checkpoint
from sparkmirror.kafka import messages
from sparkmirror.kafka.records import Record

from .checkpoints import Naming
from .groups import GroupOffset, Offsets, TopicPartition
from .internal_topic import InternalTopic

log = logging.getLogger(__name__)
_WAIT = 0.1
Moves = dict[str, dict[TopicPartition, GroupOffset]]


class Echoes:
    """How far the opposite flow has ever told a group to go here, by its checkpoints topic.

    Invariants: `_highest` is right for everything before the topic's position, also where a group was rewound later, and for
    all topics that were there under the name. Of a topic that may not be read, anything may be an echo.
    """

    def __init__(self, topic: InternalTopic, groups: Collection[str]) -> None:
        self._topic = topic
        self._groups = frozenset(groups)
        self._highest: dict[tuple[str, str, int], int] = {}
        self._is_forbidden = False

    def follow(self) -> None:
        """Read to the end. No topic: nobody moves groups here."""
        try:
            self._read()
        except BrokerError as error:
            if error.code == messages.TOPIC_AUTHORIZATION_FAILED:
                if not self._is_forbidden:
                    log.warning("Groups that come back are not moved: %s", error)
                self._is_forbidden = True
            elif error.code != messages.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        else:
            self._is_forbidden = False

    def _read(self) -> None:
        # The end is asked for again each time: the topic may be created again meanwhile.
        while self._topic.position < self._topic.end():
            for record in self._topic.poll(_WAIT):
                self.take(record)

    def take(self, record: Record) -> None:
        if record.key is None or record.value is None:
            return
        try:
            c = decode_checkpoint(record.key, record.value)
        except MalformedRecord:  # the task whose topic this is tells of it
            return
        if c.group in self._groups:
            key = c.group, c.topic, c.partition
            self._highest[key] = max(c.downstream_offset, self._highest.get(key, -1))

    def is_echo(self, group: str, topic: str, partition: int, offset: int) -> bool:
        return self._is_forbidden or offset <= self._highest.get((group, topic, partition), -1)


class Homecoming:
    """What is to be committed at home, on the target of this flow.

    Invariants: a checkpoint is in `pending` from when it was news until the group was there or beyond, and then never again;
    those of earlier tasks are not in it. The opposite flow's checkpoints are read after the groups were asked, so that no echo
    comes before its cause.
    """

    def __init__(self, naming: Naming, echoes: Echoes) -> None:
        self._naming = naming
        self._echoes = echoes
        self.is_home = cache(naming.leads_home)
        self.pending: Moves = {}

    def take(self, news: Sequence[Checkpoint], committed: Mapping[str, Offsets]) -> bool:
        """Checkpoints are due for what groups have committed here; True if that brings one home."""
        found = [
            (checkpoint, *place)
            for checkpoint in news
            if self.is_home(checkpoint.topic)
            for place in self._copies(checkpoint, committed[checkpoint.group])
        ]
        if found:
            self._echoes.follow()
        is_new = False
        for c, copy, offset in found:
            moves = self.pending.setdefault(c.group, {})
            moves.pop((c.topic, c.partition), None)
            if not self._echoes.is_echo(c.group, copy, c.partition, offset):
                moves[c.topic, c.partition] = GroupOffset(c.downstream_offset, c.metadata)
                is_new = True
            if not moves:
                del self.pending[c.group]
        return is_new

    def joined(self, onward: Moves) -> Moves:
        """All that the target's groups are to be moved to: what checkpoints say, but home only what is pending."""
        found: Moves = {}
        for group, offsets in onward.items():
            others = {key: offset for key, offset in offsets.items() if not self.is_home(key[0])}
            if others:
                found[group] = others
        for group, offsets in self.pending.items():
            found.setdefault(group, {}).update(offsets)
        return found

    def settle(self, groups: Collection[str]) -> None:
        """These groups are where they are to be."""
        for group in groups:
            self.pending.pop(group, None)

    def _copies(self, checkpoint: Checkpoint, committed: Offsets) -> Iterator[tuple[str, int]]:
        """The topic here of which a checkpoint speaks, and how far the group is in it."""
        for (topic, partition), there in committed.items():
            if (
                there is not None
                and partition == checkpoint.partition
                and self._naming.comes_from_target(topic)
                and self._naming.downstream(topic) == checkpoint.topic
            ):
                yield topic, there.offset
