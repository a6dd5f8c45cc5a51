"""A consumer group that is to move: its checkpoints on the target in, its offsets there out, as long as nobody consumes there."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from enum import Enum

from sparkmirror.client import MirrorClient
from sparkmirror.connectors.patience import Job, pause
from sparkmirror.errors import BrokerError
from sparkmirror.formats.mirror import Checkpoint
from sparkmirror.kafka import messages
from sparkmirror.offsets.checkpoint_reader import CheckpointReader
from sparkmirror.offsets.checkpoints import not_there_yet, offsets_to_sync
from sparkmirror.offsets.groups import GroupOffset, Groups, Offsets, TopicPartition
from sparkmirror.offsets.internal_topic import InternalTopic
from sparkmirror.offsets.target_topics import TargetTopics

# What a broker answers to one who commits for a group without being a member, while it has some.
_HAS_MEMBERS = (
    messages.UNKNOWN_MEMBER_ID,
    messages.ILLEGAL_GENERATION,
    messages.REBALANCE_IN_PROGRESS,
)


class Outcome(Enum):
    """What came of a try."""

    MOVED = "offsets were committed"
    UP_TO_DATE = "the group is where its checkpoints are, or further"
    HAS_MEMBERS = "the group has members on the target"
    NO_CHECKPOINTS = "the group has no checkpoints"
    BEYOND = "its checkpoints are beyond the end of the remote topics"

    @property
    def is_done(self) -> bool:
        return self in (Outcome.MOVED, Outcome.UP_TO_DATE)


class GroupSync:
    """Moves a group on the target forward to its checkpoints.

    Invariants: offsets never go back, but from beyond the end of a log; nothing is committed beyond it, nor while the group has
    members; what stands in the way is said once, and again only after it has changed.
    """

    def __init__(
        self, client: MirrorClient, group: str, source: str, say: Callable[[str], None]
    ) -> None:
        self._group = group
        self._source = source
        self._say = say
        self._where = client.cluster.settings
        self._groups = Groups(client.cluster)
        self._topics = TargetTopics(client.cluster)
        self._topic = client.replication_policy.checkpoints_topic(source)
        self._reader = CheckpointReader(InternalTopic(client.cluster, self._topic), group.__eq__)
        self._last: Outcome | None = None

    def run(self, interval: float, stopping: threading.Event) -> None:
        """Follow the checkpoints until told to stop; what fails and may pass is tried again."""
        job = Job(f"Group {self._group}", interval, lambda: self._step(stopping))
        job.run()
        while not pause(stopping, job.left):
            job.run()

    def once(self) -> Outcome:
        """One try; what fails is raised."""
        return self._try(lambda: False)

    def sentence(self, outcome: Outcome) -> str:
        """What an outcome means."""
        group = f"Group {self._group}"
        match outcome:
            case Outcome.HAS_MEMBERS:
                return f"{group} has members on {self._where}: it is left alone while it has."
            case Outcome.NO_CHECKPOINTS:
                return (
                    f"{group} has no checkpoints in {self._topic} on {self._where}: either it has committed nothing "
                    f"on {self._source} yet, or no checkpoint connector follows it."
                )
            case Outcome.BEYOND:
                return (
                    f"{group} has checkpoints beyond the end of remote topics on {self._where}: the topics were created again "
                    "and have not been copied so far. The group is moved when they have."
                )
            case Outcome.UP_TO_DATE:
                return f"{group} on {self._where} is where its checkpoints are, or further."
            case Outcome.MOVED:
                return f"{group} on {self._where} follows its checkpoints."

    def _step(self, stopping: threading.Event) -> None:
        outcome = self._try(stopping.is_set)
        if stopping.is_set():
            return
        last, self._last = self._last, outcome
        if last is not None and last.is_done and outcome.is_done:
            return
        if outcome is not last:
            self._say(self.sentence(outcome))

    def _try(self, is_stopped: Callable[[], bool]) -> Outcome:
        wanted = self._wanted(is_stopped)
        if not wanted:
            return Outcome.NO_CHECKPOINTS
        if self._group in self._groups.active():
            return Outcome.HAS_MEMBERS
        committed = self._committed()
        ahead = not_there_yet(wanted, committed)
        self._topics.look({topic for topic, _ in ahead})
        # What is not there, the broker refuses with its reason.
        missing = {key: o.offset for key, o in ahead.items() if not self._topics.has(key)}
        ends = missing | self._topics.ends(ahead)
        due = offsets_to_sync(ahead, committed, ends)
        if not due:
            is_beyond = any(offset.offset > ends.get(key, -1) for key, offset in ahead.items())
            return Outcome.BEYOND if is_beyond else Outcome.UP_TO_DATE
        error = self._groups.commit({self._group: due}).failed.get(self._group)
        if isinstance(error, BrokerError) and error.code in _HAS_MEMBERS:
            return Outcome.HAS_MEMBERS
        # Of a commit that failed, parts may have been taken all the same.
        now: Offsets = due if error is None else self._committed()
        for line in moves(due, committed, now):
            self._say(line)
        if error is not None:
            raise error
        return Outcome.MOVED

    def _wanted(self, is_stopped: Callable[[], bool]) -> dict[TopicPartition, GroupOffset]:
        try:
            is_read = self._reader.read(is_stopped)
        except BrokerError as error:
            if error.code != messages.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            return {}
        # Half of the log may hold checkpoints that the other half has replaced.
        return _offsets(self._reader) if is_read else {}

    def _committed(self) -> Offsets:
        answers = self._groups.committed([self._group])
        for error in answers.failed.values():
            raise error
        return answers.found[self._group]


def moves(due: Mapping[TopicPartition, GroupOffset], before: Offsets, now: Offsets) -> list[str]:
    """A line for each offset that was due and is there now: `topic-partition old -> new`, a dash where there was none."""
    lines = []
    for (topic, partition), offset in sorted(due.items(), key=lambda item: item[0]):
        there = now.get((topic, partition))
        if there is not None and there.offset == offset.offset:
            old = before.get((topic, partition))
            lines.append(
                f"{topic}-{partition} {'-' if old is None else old.offset} -> {offset.offset}"
            )
    return lines


def _offsets(reader: CheckpointReader) -> dict[TopicPartition, GroupOffset]:
    return {_key(c): GroupOffset(c.downstream_offset, c.metadata) for c in reader.checkpoints}


def _key(checkpoint: Checkpoint) -> TopicPartition:
    return checkpoint.topic, checkpoint.partition
