"""What the config topic tells that is not in its snapshot: events of the tail thread in, taken by the herder's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from .states import RestartRequest, SessionKey, TaskId


class ConfigNews:
    """Listens to the config store.

    Invariants: `take_change` is true once after one or more changes; of the restart requests for one connector only the one with
    the greatest impact is kept.
    """

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None
        """Called after each change, from the thread that brings it."""
        self._lock = threading.Lock()
        self._is_changed = False
        self._restarts: dict[str, RestartRequest] = {}
        self._levels: dict[str, str] = {}
        self._removed: set[str] = set()

    def _changed(self) -> None:
        with self._lock:
            self._is_changed = True
        self.wake()

    # -- from the store ---------------------------------------------------------------------------

    def connector_config_updated(self, name: str) -> None:
        self._changed()

    def connector_config_removed(self, name: str) -> None:
        with self._lock:
            self._restarts.pop(name, None)
            self._removed.add(name)
        self._changed()

    def task_configs_updated(self, tasks: Sequence[TaskId]) -> None:
        self._changed()

    def target_state_changed(self, name: str) -> None:
        self._changed()

    def session_key_updated(self, key: SessionKey) -> None:
        self._changed()

    def restart_requested(self, request: RestartRequest) -> None:
        with self._lock:
            known = self._restarts.get(request.connector)
            if known is None or request.impact >= known.impact:
                self._restarts[request.connector] = request
        self._changed()

    def logger_level_updated(self, namespace: str, level: str) -> None:
        with self._lock:
            self._levels[namespace] = level
        self._changed()

    # -- for the herder ---------------------------------------------------------------------------

    def take_change(self) -> bool:
        with self._lock:
            is_changed, self._is_changed = self._is_changed, False
        return is_changed

    def take_removed(self) -> set[str]:
        """Connectors that were deleted; they may have been created again since."""
        with self._lock:
            removed, self._removed = self._removed, set()
        return removed

    def take_restarts(self) -> list[RestartRequest]:
        with self._lock:
            restarts, self._restarts = self._restarts, {}
        return list(restarts.values())

    def take_levels(self) -> dict[str, str]:
        with self._lock:
            levels, self._levels = self._levels, {}
        return levels
