"""The source connector: a connector config in, the configs of its tasks out, made anew whenever the topics change."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from sparkmirror.config.query import QueryConfig
from sparkmirror.config.source import AT_LEAST_ONCE_NOTE
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.dataplane.plan import assign
from sparkmirror.errors import AccessFailed, BrokerError, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.kafka.api_versions import Side, losses
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.property_support import PropertySupport

from .acl_sync import TopicAclSync
from .background import Background
from .checking import check_copying
from .connector import ConnectorContext
from .ledger import Ledger
from .map_keeper import MapKeeper
from .news import News
from .patience import Job, patiently, pause
from .source_settings import source_settings
from .source_topics import SourceTopics
from .topic_configs import TopicConfigSync
from .topic_deletes import TopicDeletes

log = logging.getLogger(__name__)
TASK_CLASS = "org.apache.kafka.connect.mirror.MirrorSourceTask"
_ASSIGNED = "task.assigned.partitions"
_COUNT = "task.count"
"""Of a connector with a cap on what it reads: its tasks may be on several workers, which share it."""
_MOST_NOTED = 20
_MOST_REFUSALS = 1


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
        self._home = Cluster(self._settings.store_cluster)
        patience = self._settings.config.admin_timeout_ms / 1000
        self._background = Background(self._label, self._watch, context.fail, patience)
        support = PropertySupport()
        self._topics = SourceTopics(
            self._settings, self._source, self._target, self._background.stopping, support
        )
        self._map_keeper: MapKeeper | None = None
        self._configs = TopicConfigSync(config, self._source, self._target, self._label, support)
        ledger = Ledger(self._home, self._settings.store, "synced-acls")
        self._acls = TopicAclSync(config, self._source, self._target, ledger, self._label)
        self._deletes: TopicDeletes | None = None
        if config.sync_topic_deletes:
            self._deletes = TopicDeletes(
                self._settings, self._source, self._target, self._home, self._label
            )
        self._news = News()
        self._refusals = 0
        """In a row; of any cluster."""

    def start(self) -> None:
        for warning in self._settings.config.warnings:
            log.warning("%s: %s", self._label, warning)
        if self._props.get("offsets.storage.topic"):
            log.warning(
                "%s: offsets.storage.topic is not used; positions are in the worker's own topic %s.",
                self._label,
                self._settings.store.topic,
            )
        if not self._settings.config.enabled:
            return
        if not self._settings.config.exactly_once:
            log.warning("%s: %s", self._label, AT_LEAST_ONCE_NOTE)
        self._background.start()

    def stop(self) -> None:
        self._background.stop()
        if self._map_keeper is not None:
            self._map_keeper.stop()

    def task_configs(self, tasks_max: int) -> list[dict[str, str]]:
        assigned = assign(self._topics.partitions(), tasks_max)
        more = {_COUNT: str(len(assigned))} if self._settings.config.rate_limits.flow else {}
        return [
            {
                **self._props,
                "task.class": TASK_CLASS,
                "task.index": str(index),
                _ASSIGNED: ",".join(f"{topic}-{number}" for topic, number in partitions),
                **more,
            }
            for index, partitions in enumerate(assigned)
        ]

    def _watch(self) -> None:
        stopping = self._background.stopping
        try:
            if not patiently(self._topics.start, stopping, self._label):
                return
            self._tell_missing(self._source, "source")
            self._tell_missing(self._target, "target")
            self._keep_map()
            self._note()
            if self._background.ready():
                self._context.request_task_reconfiguration()
            if not self._topics.is_complete and not patiently(self._refresh, stopping, self._label):
                return
            check_copying(self._props, self._settings.config, self._source, self._target)
            jobs = self._jobs()
            while jobs:
                job = min(jobs, key=lambda job: job.due)
                if pause(stopping, job.left):
                    return
                job.run()
        finally:
            self._source.close()
            self._target.close()
            self._home.close()

    def _tell_missing(self, cluster: Cluster, side: Side) -> None:
        """Log what is lost by each optional API that a cluster does not offer."""
        offered = cluster.any_connection().versions
        for lost in losses(offered, [side]):
            if lost.is_missing:
                said = lost.api.is_offered(offered)
                log.warning("%s: %s %s: %s.", self._label, cluster.settings, said, lost.lack.what)

    def _jobs(self) -> list[Job]:
        """What is done at intervals: ACLs and properties at once and from then on, new topics after one interval."""
        config, now = self._settings.config, time.monotonic()
        jobs = []
        if config.sync_topic_acls_enabled:
            seconds = config.sync_topic_acls_interval_seconds
            jobs.append(self._job("ACLs", seconds, self._sync_acls, now))
        if config.sync_topic_configs_enabled:
            seconds = config.sync_topic_configs_interval_seconds
            jobs.append(self._job("topic properties", seconds, self._sync_configs, now))
        if interval := self._settings.refresh_interval:
            jobs.append(Job(self._label, interval, self._look))
        return jobs

    def _job(self, what: str, seconds: int, action: Callable[[], None], due: float) -> Job:
        """Errors that do not pass by themselves are told once, and the next round tries again."""

        def run() -> None:
            try:
                self._target.refresh([])  # whoever is the controller now is to alter things
                action()
            except KafkaError as error:
                self._bear(error)
                if error.retriable:
                    raise
                if self._news.is_new(what, str(error)):
                    log.error("%s: %s are not in step: %s", self._label, what, error)
            else:
                self._refusals = 0
                self._news.over(what)

        job = Job(f"{self._label}, {what}", float(seconds), run)
        job.due = due
        return job

    def _sync_acls(self) -> None:
        self._acls.sync({topic for topic, _ in self._topics.partitions()})

    def _sync_configs(self) -> None:
        try:
            self._configs.sync(self._topics.remotes())
        except BrokerError as error:
            if error.code != messages.UNSUPPORTED_VERSION:  # that was told at the start
                raise

    def _keep_map(self) -> None:
        if self._settings.copy.offset_map_topic and not self._background.stopping.is_set():
            self._map_keeper = MapKeeper(self._settings, self._topics.partitions, self._label)
            self._map_keeper.start()

    def _note(self) -> None:
        topics = sorted({topic for topic, _ in self._topics.partitions()})
        places = {t: self._settings.places(t, self._source, self._target) for t in topics}
        notes = (
            placed_note({t: n for t, n in places.items() if n}),
            self._query_note(),
            "" if self._settings.config.exactly_once else AT_LEAST_ONCE_NOTE,
        )
        self._context.note(" ".join(filter(None, notes)))

    def _query_note(self) -> str:
        query = self._settings.config.query
        return "" if query is None else query_note(query)

    def _look(self) -> None:
        try:
            self._refresh()
            if self._deletes is not None:
                self._deletes.look(self._topics.partitions())
            self._refusals = 0
        except KafkaError as error:
            self._bear(error)
            log.warning("%s: the topics could not be looked at: %s", self._label, error)

    def _refresh(self) -> None:
        """Look at the topics, and again until all remote topics are created: those that are there are copied meanwhile."""
        while not self._background.stopping.is_set():
            if self._topics.refresh():
                self._context.request_task_reconfiguration()
            self._note()
            if self._topics.is_complete:
                return

    def _bear(self, error: KafkaError) -> None:
        """Fail if a cluster does not let us in, and it is not for once: who starts again reads passwords anew."""
        if isinstance(error, AccessFailed):
            self._refusals += 1
            if self._refusals > _MOST_REFUSALS:
                raise error


def placed_note(places: Mapping[str, int]) -> str:
    """What there is to know of topics whose copies have another number of partitions, by topic."""
    if not places:
        return ""
    shown = [f"{topic} ({count})" for topic, count in list(places.items())[:_MOST_NOTED]]
    more = len(places) - len(shown)
    others = f" and {more} more" if more else ""
    return (
        f"Placed by key on another number of partitions: {', '.join(shown)}{others}. "
        "Group offsets of these topics are translated by time only."
    )


def query_note(query: QueryConfig) -> str:
    """What there is to know of the query of a connector."""
    if not query.may_vary:
        return ""
    return (
        "Records may come twice after a failure: the query may give another answer to the same record "
        "(transform.nondeterministic=allow)."
    )


def task_count(task: Mapping[str, str]) -> int:
    """How many tasks the connector has, all workers together; 0 if its task configs do not say so."""
    return int(task.get(_COUNT, "0"))


def assigned_partitions(task: Mapping[str, str]) -> list[TopicPartition]:
    """The source partitions that a task config names."""
    found = []
    for item in filter(None, task.get(_ASSIGNED, "").split(",")):
        topic, _, number = item.rpartition("-")
        found.append((topic, int(number)))
    return found
