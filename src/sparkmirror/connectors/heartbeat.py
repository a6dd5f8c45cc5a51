"""The heartbeat connector and its task: a connector config in, a sign of life in the target's heartbeats topic out."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping

from sparkmirror.config.heartbeat import HeartbeatConfig
from sparkmirror.formats.connect import heartbeat_offset_key
from sparkmirror.formats.mirror import Heartbeat, encode_heartbeat
from sparkmirror.offsets.internal_topic import InternalTopic

from .background import Background
from .checking import check_heartbeats
from .clients import cluster_for, record_writer
from .connector import ConnectorContext, TaskContext
from .internal import provide_compacted
from .patience import patiently, pause

log = logging.getLogger(__name__)
TASK_CLASS = "org.apache.kafka.connect.mirror.MirrorHeartbeatTask"
ZERO_OFFSET = b'{"offset":0}'
_ONLY_TASK = "0"
_LEAST_INTERVAL = 0.1


class HeartbeatConnector:
    """Provides the heartbeats topic; has one task, or none where no heartbeats are wanted."""

    def __init__(self, props: Mapping[str, str], context: ConnectorContext) -> None:
        self._props = dict(props)
        self._config = HeartbeatConfig.parse(props)
        self._target = cluster_for(props, "target", "admin", "heartbeats-target-admin")
        patience = self._config.admin_timeout_ms / 1000
        name = f"Connector {self._config.name}"
        self._background = Background(name, self._work, context.fail, patience)
        self._label = name

    def start(self) -> None:
        for warning in self._config.warnings:
            log.warning("%s: %s", self._label, warning)
        self._background.start()

    def stop(self) -> None:
        self._background.stop()

    def task_configs(self, tasks_max: int) -> list[dict[str, str]]:
        if not self._config.emit_heartbeats_enabled:
            return []
        return [{**self._props, "task.class": TASK_CLASS}]

    def _work(self) -> None:
        try:
            is_there = patiently(self._create_topic, self._background.stopping, self._label)
            self._background.ready()
            if is_there:
                check_heartbeats(self._props, self._config, self._target)
        finally:
            self._target.close()

    def _create_topic(self) -> None:
        config = self._config
        provide_compacted(
            self._target,
            config.heartbeats_topic,
            config.heartbeats_replication_factor,
            may_lower_factor=not config.heartbeats_replication_factor_explicit,
        )


class HeartbeatTask:
    """Writes one heartbeat each interval, the first after one interval."""

    def __init__(self, props: Mapping[str, str], context: TaskContext) -> None:
        self._config = HeartbeatConfig.parse(props)
        self._context = context
        self._target = record_writer(props, _ONLY_TASK)
        self._topic = InternalTopic(self._target, self._config.heartbeats_topic)
        self._has_stored = False

    def run(self, stopping: threading.Event) -> None:
        label = f"Task {self._config.name}-{_ONLY_TASK}"
        interval = max(_LEAST_INTERVAL, self._config.emit_heartbeats_interval_seconds)
        try:
            while not pause(stopping, interval):
                if patiently(self._beat, stopping, label):
                    patiently(self._tell, stopping, label)
        finally:
            self._target.close()

    def _beat(self) -> None:
        config = self._config
        now = (
            time.time_ns() // 1_000_000
        )  # of this try: one that had to wait would tell of the past
        row = encode_heartbeat(Heartbeat(config.source_alias, config.target_alias, now))
        self._topic.append([row], now)

    def _tell(self) -> None:
        config = self._config
        self._context.wrote(self._topic.name)
        if not self._has_stored:  # it never changes, so once is enough
            key = heartbeat_offset_key(config.name, config.source_alias, config.target_alias)
            self._context.store_offsets([(key, ZERO_OFFSET)])
            self._has_stored = True
