"""Progress records: what a copy task reports once a second to `mm2-progress.<source alias>.internal` on the target.

Key: `connector/task`. Value: one JSON object with the partitions that changed since the last report (all of them in the first
report and in every thirtieth). A report on many partitions comes in several records, each with some of them. Counters run from
the start of the task (`since`), so rates come from two reports.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_type_hints

from sparkmirror.errors import KafkaError
from sparkmirror.formats import java_json


def progress_topic(source_alias: str) -> str:
    return f"mm2-progress.{source_alias}.internal"


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    topic: str
    partition: int
    remote: str
    offset: int
    """Next source offset to be copied."""
    target: int
    """Next offset on the target; -1 if there are several."""
    records: int
    bytes: int
    lag: int
    """Source records not yet on the target; -1 while unknown."""
    age_ms: int
    """Age of the last copied record when it was acknowledged; -1 before the first."""
    state: str = "RUNNING"
    error: str = ""
    """Why the partition stands still, if it does."""
    loss: str = ""
    """What was lost or not as it was, last time that happened in this task."""
    attempts: int = 0
    """How often it was tried again since it stands still."""
    routed: str = ""
    """With transforms: the topics that records went to, with a space between."""
    places: int = 0
    """The number of partitions on which records are placed by their keys, so that group offsets are translated by time only; 0:
    records stay in their partition."""
    since: int = -1
    """With a query: the source offset from which records pass through it; -1 if that is not known."""
    until: int = -1
    """Where transforms or a query were replaced: the last source offset that still passes through the old ones; -1 elsewhere."""
    held_back_by: str = ""
    """The key of the rate limit because of which less is read than there is."""

    @property
    def written(self) -> list[str]:
        """The topics that records went to since the task began."""
        return self.routed.split() or ([self.remote] if self.records else [])


@dataclass(frozen=True, slots=True)
class RunsOn:
    """Where a copy task runs."""

    host: str = ""
    """The address of its executor, as the driver sees it."""
    spark_task: int = -1
    """The number of its Spark task in the job."""
    attempt: int = 0
    """How often Spark has run that task before in this job."""


@dataclass(frozen=True, slots=True)
class Progress:
    connector: str
    task: int
    since: int
    time: int
    partitions: tuple[PartitionProgress, ...]
    runs_on: RunsOn = RunsOn()


_FIELDS: Mapping[str, type] = get_type_hints(PartitionProgress)
_RUNS_ON: Mapping[str, type] = get_type_hints(RunsOn)


def encode(progress: Progress) -> tuple[bytes, bytes]:
    rows = [encode_partition(row) for row in progress.partitions]
    return encode_rows(
        progress.connector, progress.task, progress.since, progress.time, rows, progress.runs_on
    )


def encode_rows(
    connector: str,
    task: int,
    since: int,
    time: int,
    rows: Sequence[bytes],
    runs_on: RunsOn = RunsOn(),  # noqa: B008 - it cannot be changed
) -> tuple[bytes, bytes]:
    """The record of a report whose partitions are encoded already (`encode_partition`)."""
    key = f"{connector}/{task}".encode()
    fields = {"connector": connector, "task": task, "since": since, "time": time}
    head = _json(fields | asdict(runs_on))
    return key, head[:-1] + b',"partitions":[' + b",".join(rows) + b"]}"


def encode_tasks(
    connector: str,
    since: int,
    time: int,
    partitions: Iterable[tuple[int, bytes]],
    runs_on: RunsOn = RunsOn(),  # noqa: B008 - it cannot be changed
) -> list[tuple[bytes, bytes]]:
    """One record for each task, of partitions that are encoded already, each with its task."""
    tasks: dict[int, list[bytes]] = {}
    for task, row in partitions:
        tasks.setdefault(task, []).append(row)
    return [
        encode_rows(connector, task, since, time, rows, runs_on) for task, rows in tasks.items()
    ]


def encode_partition(row: PartitionProgress) -> bytes:
    """All fields, but those that only a query or a rate limit has."""
    return _json(
        {
            name: value
            for name, value in asdict(row).items()
            if (name not in ("since", "until") or value >= 0) and (name != "held_back_by" or value)
        }
    )


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode(value: bytes) -> Progress:
    """KafkaError if it is not one: anybody may have written it who may write to the topic."""
    try:
        report = java_json.decode(value)
        return Progress(
            _typed(report["connector"], str),
            _typed(report["task"], int),
            _typed(report["since"], int),
            _typed(report["time"], int),
            # A newer task may tell more than this one understands.
            tuple(PartitionProgress(**_known(row, _FIELDS)) for row in report["partitions"]),
            RunsOn(**_known(report, _RUNS_ON)),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise KafkaError(f"A progress record cannot be read: {error}.") from error


def _known(row: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    return {name: _typed(value, types[name]) for name, value in row.items() if name in types}


def _typed(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise TypeError(f"{str(value)[:40]!r} is no {kind.__name__}")
    return value
