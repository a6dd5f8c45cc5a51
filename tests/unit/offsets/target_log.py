"""A target log as a list of source offsets, and the offset map that its writers leave behind."""

from __future__ import annotations

from sparkmirror.formats.offset_map import Run, Segment
from sparkmirror.offsets.map_tidying import tidied
from sparkmirror.offsets.map_writer import MapWriter
from sparkmirror.offsets.offset_map import PartitionMap
from tests.unit.offsets.segments import IDS, PLACE

Step = tuple[str, int]


class TargetLog:
    """One partition that is copied while positions are set, tasks are killed and logs are cut back.

    Invariant: `log` holds the source offset of each record of the target, None for a record of another producer.
    """

    def __init__(self) -> None:
        self.log: list[int | None] = []
        self.missing: set[int] = set()
        """Source offsets without a record: transaction markers, or records that compaction removed."""
        self.position = 0
        self.map = PartitionMap(PLACE)
        self.order = 0
        self._writer = MapWriter()
        self._longest = 0
        self._is_set = False
        """Whether the position was set since the last record that the map tells of."""

    def step(self, kind: str, number: int) -> None:
        getattr(self, kind)(number)

    # -- what a copy task does --------------------------------------------------------------------

    def copy(self, count: int) -> None:
        for source in range(self.position, self.position + count):
            if source not in self.missing:
                self._writer.acknowledged(PLACE, IDS, Run(source, len(self.log), 1))
                self.log.append(source)
        self.position += count
        self._longest = max(self._longest, len(self.log))

    def write(self, _: int = 0) -> None:
        segments = self._writer.take()
        self._is_set &= not segments
        self.put(segments)

    def restart(self, _: int = 0) -> None:
        self.write()
        self._writer = MapWriter()

    # -- what happens to it -----------------------------------------------------------------------

    def set(self, number: int) -> None:
        """An operator sets the position of a stopped connector."""
        self.restart()
        self._set(number)

    def kill(self, _: int) -> None:
        self._writer = MapWriter()

    def kill_and_set(self, number: int) -> None:
        """The same after a kill."""
        self._writer = MapWriter()
        self._set(number)

    def _set(self, number: int) -> None:
        """Of some sets nothing tells: before the first segment, twice in a hole, or back within a hole.

        So the map hears of records before those, and at once of those that follow a hole.
        """
        while self._is_set or not len(self.map):
            self._tell()
        last = self.map.line[-1]
        is_lost = last.target_end < len(self.log)
        is_within = is_lost and last.source_end <= number < self.position
        self.position = self.position if is_within else number
        self._is_set = True
        while is_lost and self._is_set:
            self._tell()

    def _tell(self) -> None:
        self.copy(1)
        self.restart()

    def foreign(self, count: int) -> None:
        """Another producer writes to the target."""
        self.log += [None] * count
        self._longest = max(self._longest, len(self.log))

    def gap(self, count: int) -> None:
        self.missing |= set(range(self.position, self.position + count)) - set(self.log)

    def compact(self, number: int) -> None:
        """The source loses records that were copied."""
        self.missing |= {source for source in range(self.position) if source % 3 == number % 3}

    def cut(self, count: int) -> None:
        """The target loses its last records (unclean leader election), and the copy resumes behind what is left."""
        self.restart()
        del self.log[max(0, len(self.log) - count) :]
        rest = [source for source in self.log if source is not None]
        self.position = rest[-1] + 1 if rest else 0

    def tidy(self, _: int) -> None:
        for key, change in tidied(self.map, 0).items():
            if change is None:
                self.map.remove(key.target_start)
            else:
                self.put([change])

    def put(self, segments: list[Segment]) -> None:
        for one in segments:
            self.map.put(one, self.order)
            self.order += 1

    def outgrow(self) -> None:
        """Copy on until the log is as long as it ever was: what was cut off is overwritten."""
        while len(self.log) < self._longest:
            self.copy(1)

    # -- what is true -----------------------------------------------------------------------------

    @property
    def offsets(self) -> range:
        """Where groups may be on the source."""
        copied = [source for source in self.log if source is not None]
        return range(max(copied, default=0) + 3)

    def unread_from(self, offset: int) -> int | None:
        """The highest target offset with a copy of each record from a source offset on at or behind it; None: there are none."""
        last = {source: target for target, source in enumerate(self.log) if source is not None}
        return min((target for source, target in last.items() if source >= offset), default=None)

    def unread_behind(self, target: int) -> int | None:
        """The lowest source offset at or behind a target offset that a group there may not have read; None: there is none.

        It has read what lies before, unless it came over when the map told of a copy behind already.
        """
        told = {
            place
            for one in self.map.line
            for run in one.runs()
            for place in range(run.target, run.target_end)
        }
        read = set(self.log[:target])
        return min(
            (
                source
                for place, source in enumerate(self.log)
                if place >= target and source is not None and (place in told or source not in read)
            ),
            default=None,
        )
