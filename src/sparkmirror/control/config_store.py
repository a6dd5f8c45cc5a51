"""The configs of all connectors and tasks: calls of one worker in, what all workers of the group see out.

Kept in the config topic, byte for byte as Java's workers keep it. A write returns when it has been read back, so that whoever
wrote sees it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence

from sparkmirror.errors import ConnectError, KafkaError
from sparkmirror.formats import config_log
from sparkmirror.formats.config_log import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    LoggerRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCountRecord,
    TaskRecord,
)

from .config_fold import ConfigFold, ConfigListener
from .states import ClusterConfig, RestartRequest, SessionKey, TargetState
from .topic_log import STOP_S, LogFactory

__all__ = ["ConfigListener", "ConfigStore"]

_TIMEOUT_S = 30.0


class ConfigStore:
    """One worker's view of the config topic. Every call may come from any thread but the listener's.

    Invariants: a snapshot never changes, and is made anew only after a record was read. The listener is told of what is read
    after `start` has returned, after the snapshot shows it, in the order of the log. Writes of this worker do not interleave.
    """

    def __init__(
        self, log_factory: LogFactory, listener: ConfigListener, *, timeout: float = _TIMEOUT_S
    ) -> None:
        self._log = log_factory(self._read)
        self._listener = listener
        self._timeout = timeout
        self._fold = ConfigFold()
        self._folding = threading.Lock()
        self._writing = threading.Lock()
        self._is_started = False

    def start(self) -> None:
        """Read all there is; the listener is told nothing of that."""
        self._log.start()
        with self._folding:
            self._is_started = True

    def stop(self, timeout: float = STOP_S) -> None:
        """Stop; a write that waits for its cluster is given up."""
        self._log.stop(timeout)

    @property
    def is_ready(self) -> bool:
        return self._log.is_ready

    @property
    def is_answering(self) -> bool:
        """False while it is known that its cluster cannot be reached."""
        return self._log.is_answering

    def _read(
        self, _partition: int, offset: int, key: bytes | None, value: bytes | None, _time: int
    ) -> None:
        with self._folding:
            notice = self._fold.apply(offset, key, value)
            is_started = self._is_started
        if notice is not None and is_started:
            notice(self._listener)

    # -- reading ------------------------------------------------------------------------------

    def snapshot(self) -> ClusterConfig:
        """What the topic says, as far as it has been read."""
        with self._folding:
            return self._fold.snapshot()

    def contains(self, name: str) -> bool:
        """Whether a connector of this name is known."""
        with self._folding:
            return name in self._fold

    def refresh(self, timeout: float) -> None:
        """Read everything that is in the topic now; ConnectError if that takes longer."""
        self._log.read_to_end(timeout)

    # -- writing ------------------------------------------------------------------------------

    def put_connector(
        self, name: str, config: Mapping[str, str], target_state: TargetState | None = None
    ) -> None:
        """Create or change a connector; with a target state, it is never seen without it."""
        rows: list[ConfigRecord] = []
        if target_state is not None:
            rows.append(TargetStateRecord(name, target_state.value))
        rows.append(ConnectorRecord(name, config))
        self._put(f"The config of connector {name}", [rows])

    def remove_connector(self, name: str) -> None:
        self._put(
            f"The removal of connector {name}",
            [[ConnectorRecord(name, None), TargetStateRecord(name, None)]],
        )

    def put_task_configs(self, name: str, configs: Sequence[Mapping[str, str]]) -> None:
        """Replace all task configs of a connector: they count together, or not at all."""
        tasks: list[ConfigRecord] = [
            TaskRecord(name, number, config) for number, config in enumerate(configs)
        ]
        self._put(
            f"The task configs of connector {name}",
            [tasks, [CommitRecord(name, len(configs))]],
            is_refreshed_first=True,
        )

    def put_target_state(self, name: str, state: TargetState) -> None:
        self._put(f"The target state of connector {name}", [[TargetStateRecord(name, state.value)]])

    def put_session_key(self, key: SessionKey) -> None:
        row = SessionKeyRecord(key.key, key.algorithm, key.created_ms)
        self._put("The session key", [[row]])

    def put_restart_request(self, request: RestartRequest) -> None:
        row = RestartRecord(request.connector, request.include_tasks, request.only_failed)
        self._put(f"The restart request for connector {request.connector}", [[row]])

    def put_task_count_record(self, name: str, tasks: int) -> None:
        self._put(f"The task count of connector {name}", [[TaskCountRecord(name, tasks)]])

    def put_logger_level(self, namespace: str, level: str) -> None:
        self._put(f"The level of logger {namespace}", [[LoggerRecord(namespace, level)]])

    def _put(
        self,
        what: str,
        groups: Sequence[Sequence[ConfigRecord]],
        *,
        is_refreshed_first: bool = False,
    ) -> None:
        """Write groups of records, each after the one before has been read back."""
        deadline = time.monotonic() + self._timeout

        def left() -> float:
            return max(0.1, deadline - time.monotonic())

        try:
            with self._writing:
                if is_refreshed_first:
                    self._log.read_to_end(left())
                for group in filter(None, groups):
                    ends = self._log.append([config_log.encode(row) for row in group], left())
                    self._log.await_delivery(ends, left())
        except KafkaError as error:
            raise ConnectError(
                f"{what} could not be written: {error.message}", error.remedy
            ) from error
        except ConnectError as error:
            raise ConnectError(
                f"{what} could not be read back: {error.message}", error.remedy
            ) from error
