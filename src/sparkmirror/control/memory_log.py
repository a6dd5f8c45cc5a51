"""A log that lasts as long as the process, for what a standalone worker need not keep: rows in, delivered at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from .topic_log import STOP_S, OnRecord, Row


class MemoryLog:
    """Stands in for `TopicLog` where nobody else reads.

    Invariant: rows are delivered in the order of their offsets, each before the `append` that wrote it returns.
    """

    def __init__(self, on_record: OnRecord) -> None:
        self._on_record = on_record
        self._writing = threading.RLock()
        self._end = 0

    @property
    def is_ready(self) -> bool:
        return True

    @property
    def is_answering(self) -> bool:
        return True

    def start(self) -> None:
        """There is nothing to read."""

    def stop(self, timeout: float = STOP_S) -> None:
        """There is nothing to end."""

    def append(self, rows: Sequence[Row], timeout: float | None = None) -> Mapping[int, int]:
        with self._writing:
            for key, value in rows:
                offset, self._end = self._end, self._end + 1
                self._on_record(0, offset, key, value, time.time_ns() // 1_000_000)
            return {0: self._end}

    def await_delivery(self, ends: Mapping[int, int], timeout: float) -> None:
        """Everything has been delivered."""

    def read_to_end(self, timeout: float) -> None:
        """Everything has been read."""
