"""Checkpoints as a person or a script wants them: checkpoints in, lines of a table or JSON objects out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from sparkmirror.formats.mirror import BY_TIME, Checkpoint

_HEADINGS = ("SOURCE", "GROUP", "TOPIC", "PARTITION", "UPSTREAM", "DOWNSTREAM", "METADATA")
_NUMBERS = (3, 4, 5)
_GAP = "  "


@dataclass(frozen=True, slots=True, order=True)
class Translation:
    """Where a group is in a partition of the source, and where that is on the target."""

    source: str
    group: str
    topic: str
    partition: int
    upstream_offset: int
    downstream_offset: int
    metadata: str

    @property
    def is_by_time(self) -> bool:
        """Whether there is no one offset upstream: the topic's copy has another number of partitions."""
        return self.upstream_offset == BY_TIME

    def as_json(self) -> dict[str, str | int | None]:
        """`upstream_offset` is null where the downstream offset was found by time."""
        upstream = None if self.is_by_time else self.upstream_offset
        return {**asdict(self), "upstream_offset": upstream}


def translations(source: str, checkpoints: Iterable[Checkpoint]) -> list[Translation]:
    """The checkpoints of one source, sorted."""
    return sorted(
        Translation(
            source,
            c.group,
            c.topic,
            c.partition,
            c.upstream_offset,
            c.downstream_offset,
            c.metadata,
        )
        for c in checkpoints
    )


def table(rows: Sequence[Translation]) -> list[str]:
    """A heading and a line for each row, in columns."""
    cells = [
        _HEADINGS,
        *(
            (
                row.source,
                row.group,
                row.topic,
                str(row.partition),
                "by time" if row.is_by_time else str(row.upstream_offset),
                str(row.downstream_offset),
                row.metadata or "-",
            )
            for row in rows
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        _GAP.join(
            cell.rjust(width) if index in _NUMBERS else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]
