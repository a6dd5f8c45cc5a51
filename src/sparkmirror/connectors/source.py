"""The source connector: a connector config in, the configs of its tasks out, made anew whenever the topics change."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sparkmirror.config.worker import WorkerConfig
from sparkmirror.dataplane.plan import assign
from sparkmirror.errors import KafkaError
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition

from .background import Background
from .connector import ConnectorContext
from .map_keeper import MapKeeper
from .patience import patiently, pause
from .source_settings import source_settings
from .source_topics import SourceTopics

log = logging.getLogger(__name__)
TASK_CLASS = "org.apache.kafka.connect.mirror.MirrorSourceTask"
_ASSIGNED = "task.assigned.partitions"


class SourceConnector:
    """Watches the topics in a thread, from `start` to `stop`; `enabled=false` means no tasks and no watching."""

    def __init__(
        self, props: Mapping[str, str], context: ConnectorContext, worker: WorkerConfig
    ) -> None:
        self._props = dict(props)
        self._context = context
        self._settings = source_settings(props, worker)
        config = self._settings.config
        self._label = f"Connector {config.name} ({config.source_alias}->{config.target_alias})"
        self._source = Cluster(self._settings.source)
        self._target = Cluster(self._settings.target)
        self._topics = SourceTopics(self._settings, self._source, self._target)
        patience = self._settings.config.admin_timeout_ms / 1000
        self._background = Background(self._label, self._watch, context.fail, patience)
        self._map_keeper: MapKeeper | None = None

    def start(self) -> None:
        for warning in self._settings.config.warnings:
            log.warning("%s: %s", self._label, warning)
        if self._props.get("offsets.storage.topic"):
            log.warning(
                "%s: offsets.storage.topic is not used; positions are in the worker's own topic %s.",
                self._label,
                self._settings.store.topic,
            )
        if self._settings.config.enabled:
            self._background.start()

    def stop(self) -> None:
        self._background.stop()
        if self._map_keeper is not None:
            self._map_keeper.stop()

    def task_configs(self, tasks_max: int) -> list[dict[str, str]]:
        return [
            {
                **self._props,
                "task.class": TASK_CLASS,
                "task.index": str(index),
                _ASSIGNED: ",".join(f"{topic}-{number}" for topic, number in partitions),
            }
            for index, partitions in enumerate(assign(self._topics.partitions(), tasks_max))
        ]

    def _watch(self) -> None:
        stopping = self._background.stopping
        try:
            if not patiently(self._topics.start, stopping, self._label):
                return
            self._keep_map()
            if self._background.ready():
                self._context.request_task_reconfiguration()
            interval = self._settings.refresh_interval
            while interval and not pause(stopping, interval):
                self._look()
        finally:
            self._source.close()
            self._target.close()

    def _keep_map(self) -> None:
        if self._settings.copy.offset_map_topic and not self._background.stopping.is_set():
            self._map_keeper = MapKeeper(self._settings, self._topics.partitions, self._label)
            self._map_keeper.start()

    def _look(self) -> None:
        try:
            if self._topics.refresh():
                self._context.request_task_reconfiguration()
        except KafkaError as error:
            log.warning("%s: the topics could not be looked at: %s", self._label, error)


def assigned_partitions(task: Mapping[str, str]) -> list[TopicPartition]:
    """The source partitions that a task config names."""
    found = []
    for item in filter(None, task.get(_ASSIGNED, "").split(",")):
        topic, _, number = item.rpartition("-")
        found.append((topic, int(number)))
    return found
