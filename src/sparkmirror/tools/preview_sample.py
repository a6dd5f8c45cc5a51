"""Some records of a topic to try a query on: a topic and a number in, pieces of its partitions out, the newest or the oldest."""

from __future__ import annotations

from collections.abc import Mapping

from sparkmirror.dataplane.routing import opened
from sparkmirror.dataplane.stream import Piece, Stream
from sparkmirror.kafka import admin, log
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import FetchLimits
from sparkmirror.transforms.record import ConnectRecord

_FARTHER = 8
_FARTHEST = 1 << 20
"""How many offsets back the newest records are looked for: compaction and aborted transactions may leave few of many."""


def shares(available: Mapping[int, int], limit: int) -> dict[int, int]:
    """How many records each partition is to give: as many as the others, or all that it has."""
    found: dict[int, int] = {}
    left = limit
    fewest_first = sorted((count, partition) for partition, count in available.items() if count > 0)
    for place, (count, partition) in enumerate(fewest_first):
        # What cannot be dealt out evenly goes to those that have most.
        found[partition] = min(count, left // (len(fewest_first) - place))
        left -= found[partition]
    return {partition: count for partition, count in sorted(found.items()) if count}


class Sample:
    """Reads some records of one topic, as a copy of it would see them."""

    def __init__(self, cluster: Cluster, topic: str, limits: FetchLimits) -> None:
        self._cluster, self._topic, self._limits = cluster, topic, limits

    def read(self, limit: int, *, oldest: bool) -> dict[int, list[Piece]]:
        """By partition, in the order of the log: up to `limit` records in all."""
        keys = [(self._topic, number) for number in self._cluster.topic(self._topic).partitions]
        isolation = self._limits.isolation
        first = admin.list_offsets(self._cluster, keys, admin.EARLIEST)
        last = admin.list_offsets(self._cluster, keys, admin.LATEST, isolation)
        wanted = shares({key[1]: last[key] - first[key] for key in keys}, limit)
        pick = self._oldest if oldest else self._newest
        return {
            number: pick(number, first[self._topic, number], last[self._topic, number], count)
            for number, count in wanted.items()
        }

    def _oldest(self, partition: int, start: int, end: int, count: int) -> list[Piece]:
        return cut_to(self._pieces(partition, start, end, count), count, oldest=True)

    def _newest(self, partition: int, start: int, end: int, count: int) -> list[Piece]:
        back = count
        while True:
            begin = max(start, end - back)
            pieces = self._pieces(partition, begin, end, back)
            is_enough = sum(piece.count for piece in pieces) >= count
            if is_enough or begin == start or back >= _FARTHEST:
                return cut_to(pieces, count, oldest=False)
            back *= _FARTHER

    def _pieces(self, partition: int, start: int, end: int, most: int) -> list[Piece]:
        """What lies between two offsets; no more than is needed to have `most` records."""
        stream = Stream(start, self._limits.isolation)
        found: list[Piece] = []
        count = 0
        for fetched in log.read(self._cluster, self._topic, partition, start, end, self._limits):
            pieces = stream.feed(fetched)
            count += sum(piece.count for piece in pieces)
            found += pieces
            if count >= most:
                break
        return found


def cut_to(pieces: list[Piece], count: int, *, oldest: bool) -> list[Piece]:
    """The first or last records of some pieces."""
    found: list[Piece] = []
    left = count
    for piece in pieces if oldest else reversed(pieces):
        if left <= 0:
            break
        found.append(piece if piece.count <= left else _part(piece, left, oldest=oldest))
        left -= piece.count
    return found if oldest else found[::-1]


def _part(piece: Piece, count: int, *, oldest: bool) -> Piece:
    rows = [
        ConnectRecord("", -1, offset, row.timestamp, row.key, row.value, row.headers)
        for offset, row in piece.records_with_offsets()
    ]
    return opened(piece, rows[:count] if oldest else rows[-count:])
