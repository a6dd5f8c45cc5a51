"""Failed connectors and tasks, and when they are started again by themselves: failures in, due times and attempts out.

A rule without a clock: `now` (seconds, monotonic) is handed in.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparkmirror.config.worker import RestartConfig

from .states import TaskId

Item = str | TaskId


@dataclass(slots=True)
class _Record:
    attempts: int = 0
    due: float | None = None
    is_running: bool = False
    """Started again, and not failed since."""
    started: float = 0.0
    reset: float = 0.0


class Restarts:
    """Automatic restarts of one worker's connectors and tasks.

    Invariants: the n-th restart in a row comes `backoff * 2**(n-1)` after the failure, at most `backoff_max`; who has run for
    longer than `reset` begins anew; after `max_attempts` (unless that is -1) a failure stays.
    """

    def __init__(self) -> None:
        self._records: dict[Item, _Record] = {}

    def failed(self, item: Item, config: RestartConfig, now: float) -> float | None:
        """When it is to be started again; None if it is to stay as it is."""
        if not config.enabled:
            self._records.pop(item, None)
            return None
        record = self._records.setdefault(item, _Record(started=now))
        record.reset = config.reset_ms / 1000
        if now - record.started > record.reset:
            record.attempts = 0
        record.is_running = False
        if record.due is not None:
            return record.due
        if 0 <= config.max_attempts <= record.attempts:
            return None
        wait = min(config.backoff_ms * 2 ** min(record.attempts, 30), config.backoff_max_ms) / 1000
        record.due = now + wait
        return record.due

    def take_due(self, now: float) -> list[Item]:
        """Those whose time has come; each counts as one more attempt."""
        due = [i for i, r in self._records.items() if r.due is not None and r.due <= now]
        for item in due:
            record = self._records[item]
            record.attempts += 1
            record.due = None
            record.started = now
            record.is_running = True
        return due

    def take_settled(self, now: float) -> list[Item]:
        """Those that have run for so long since they were started again that the next failure is a new one."""
        settled = [
            item
            for item, record in self._records.items()
            if record.is_running and now - record.started > record.reset
        ]
        for item in settled:
            del self._records[item]
        return settled

    def next_due(self) -> float | None:
        return min((r.due for r in self._records.values() if r.due is not None), default=None)

    def attempts(self, item: Item) -> int:
        record = self._records.get(item)
        return 0 if record is None else record.attempts

    def forget(self, item: Item) -> None:
        """A person has taken care of it, or it is gone."""
        self._records.pop(item, None)
