"""What Spark's pages call the jobs of a flow: what a job copies in, sentences of bounded length and without secrets out.

The pages cut a long description: what tells one job from another comes first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .plan import TaskPlan

CALL_SITE = "callSite.short"
"""The local property by which Spark names the stages of a job; else by the line of Python that submitted it."""
_SHOWN = 3
_LONGEST = 80


@dataclass(frozen=True, slots=True)
class JobLabel:
    """The part of a flow that one Spark job, or one copy task, works on."""

    flow: str
    """`source->target`, by their aliases."""
    connector: str
    topics: tuple[str, ...] = ()
    """By name, each once."""
    tasks: tuple[int, ...] = ()
    """The connector tasks, by number."""

    @classmethod
    def of(cls, plans: Sequence[TaskPlan], *, queried: bool = False) -> JobLabel:
        """Of all partitions of some plans of one connector, or of the `queried` ones."""
        first = plans[0]
        parts = [p for plan in plans for p in plan.partitions if p.queried or not queried]
        return cls(
            f"{first.source.alias}->{first.target.alias}",
            first.flow,
            tuple(sorted({part.topic for part in parts})),
            tuple(sorted({part.task for part in parts})),
        )

    @classmethod
    def joined(cls, labels: Sequence[JobLabel]) -> JobLabel:
        """Of several copy tasks of one connector."""
        if len(labels) == 1:
            return labels[0]
        return cls(
            labels[0].flow,
            labels[0].connector,
            tuple(sorted({topic for label in labels for topic in label.topics})),
            tuple(sorted({task for label in labels for task in label.tasks})),
        )

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> JobLabel:
        """The opposite of `plain`."""
        flow, connector = str(plain["flow"]), str(plain["connector"])
        return cls(flow, connector, tuple(plain["topics"]), tuple(plain["tasks"]))

    @property
    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)

    def copying(self, spark_tasks: int) -> str:
        """For a job that copies."""
        spark = _counted(spark_tasks, "Spark task")
        return f"sparkmirror {self.flow}: {self._topics}; {self._tasks} in {spark}"

    def querying(self, query: int, copy_tasks: int) -> str:
        """For one of the short jobs of a query."""
        spark = _counted(copy_tasks, "copy task")
        return f"sparkmirror {self.flow}, query {query}: {self._topics}; {self._tasks} in {spark}"

    @property
    def _tasks(self) -> str:
        return f"{_counted(len(self.tasks), 'task')} of {_cut(self.connector)}"

    @property
    def _topics(self) -> str:
        shown = ", ".join(_cut(topic) for topic in self.topics[:_SHOWN])
        more = len(self.topics) - _SHOWN
        return f"{shown} and {more} more" if more > 0 else shown or "no topic"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"
