"""Dedicated mode: an `mm2.properties` in, its flows run side by side until they are told to stop.

Each flow has a thread that ticks: look at the topics, plan, submit a Spark job, wait for its end or for a change, and again.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence

from sparkmirror.config.flows import MirrorMakerConfig, SourceAndTarget
from sparkmirror.config.source import SourceConfig
from sparkmirror.connectors.source import SourceConnector
from sparkmirror.dataplane.job import CopyJob, SparkSession
from sparkmirror.dataplane.plan import TaskPlan, pack, positions_of
from sparkmirror.dataplane.positions import PositionStore
from sparkmirror.dataplane.progress import ProgressReader
from sparkmirror.errors import KafkaError, SparkError, SparkMirrorError
from sparkmirror.kafka.cluster import Cluster, back_off

from .flow_settings import FlowSettings, flow_settings

log = logging.getLogger(__name__)
_LOOK_BACK = 200


class FlowRunner:
    """One flow.

    Invariant: at most one job is under way; a new one is submitted only after the old one has ended or was cancelled.
    """

    def __init__(
        self,
        pair: SourceAndTarget,
        settings: FlowSettings,
        spark: SparkSession,
        neighbours: int,
    ) -> None:
        self._pair = pair
        self._settings = settings
        self._spark = spark
        self._neighbours = neighbours
        self._source = Cluster(settings.source)
        self._target = Cluster(settings.target)
        self._connector = SourceConnector(
            settings.config, self._source, self._target, settings.storage
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=str(pair), daemon=True)
        self.error: SparkMirrorError | None = None
        self.failures: list[str] = []
        self._began = int(time.time() * 1000)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _failed_partitions(self) -> list[str]:
        """The partitions that stood still with an error when they were last heard of."""
        reader = ProgressReader(self._target, self._settings.copy.progress_topic, _LOOK_BACK)
        states: dict[tuple[str, int], str] = {}
        try:
            for report in reader.poll():
                if report.time >= self._began:
                    states |= {(row.topic, row.partition): row.error for row in report.partitions}
        except KafkaError as error:
            log.debug("The last progress could not be read: %s", error)
        return [error for error in states.values() if error]

    def _run(self) -> None:
        try:
            if self._prepare():
                self._loop()
                self.failures = self._failed_partitions()
        except SparkMirrorError as error:
            log.error("Flow %s stopped: %s", self._pair, error)
            self.error = error
        except (
            BaseException
        ) as error:  # a mistake of ours: shown with its trace, and in the exit code
            self.error = SparkMirrorError(f"Flow {self._pair} crashed: {error!r}")
            raise
        finally:
            self._source.close()
            self._target.close()

    def _prepare(self) -> bool:
        """Start the connector, however long the clusters take to be there; one line a try. False if told to stop."""
        for wait in back_off(0.5, self._settings.source.reconnect_backoff_max):
            try:
                self._connector.start()
                return True
            except KafkaError as error:
                if not error.retriable:
                    raise
                log.warning("Flow %s: %s Trying again in %.1f s.", self._pair, error, wait)
            if self._stopping.wait(wait):
                return False
        return False

    def _loop(self) -> None:
        waits = back_off(0.2, 10.0)
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                self._epoch()
            except (KafkaError, SparkError) as error:
                if not error.retriable:
                    raise
                wait = next(waits)
                log.warning("Flow %s: %s Trying again in %.1f s.", self._pair, error, wait)
                self._stopping.wait(wait)
            if time.monotonic() - began > 30:
                waits = back_off(0.2, 10.0)

    def _epoch(self) -> None:
        """Plan, run one job, and watch the topics meanwhile."""
        self._spark.start()
        plans = self._plans()
        if not plans:
            self._wait_for_change(None)
            return
        job = self._spark.submit(str(self._pair), plans)
        log.info("Flow %s: %d Spark task(s) submitted.", self._pair, len(plans))
        try:
            self._wait_for_change(job)
        finally:
            if not job.finished.is_set():
                job.cancel()
        if job.error is not None:
            raise job.error

    def _plans(self) -> list[TaskPlan]:
        settings = self._settings
        packed = pack(self._connector.tasks(), max(1, self._spark.slots // self._neighbours))
        if not packed:
            return []
        self._target.refresh([settings.store.topic])
        store = PositionStore(self._target, settings.store)
        store.catch_up()
        stamp = int(time.time() * 1000)
        return [
            TaskPlan(
                flow=str(self._pair),
                index=index,
                stamp=stamp,
                source=settings.source,
                target=settings.target,
                store=settings.store,
                settings=settings.copy,
                partitions=tuple(partitions),
                positions=positions_of(
                    partitions, {part.key: store.get(part.key) for part in partitions}
                ),
                read_to=tuple(store.read_to.items()),
            )
            for index, partitions in enumerate(packed)
        ]

    def _wait_for_change(self, job: CopyJob | None) -> None:
        """Until the job ends, the topics change, or we are told to stop."""
        interval = self._settings.refresh_interval
        look_at = time.monotonic() + interval if interval else float("inf")
        while not self._stopping.is_set():
            if job is not None and job.finished.is_set():
                return
            now = time.monotonic()
            if now >= look_at:
                look_at = now + interval
                if self._refreshed():
                    return
            pause = min(0.25, max(0.0, look_at - now))
            if job is not None:
                job.finished.wait(pause)
            else:
                self._stopping.wait(pause)

    def _refreshed(self) -> bool:
        try:
            return self._connector.refresh()
        except KafkaError as error:
            log.warning("Flow %s: topics could not be looked at: %s", self._pair, error)
            return False


class MirrorMaker:
    """All flows of one properties file, in one process with one Spark session."""

    def __init__(self, properties: Mapping[str, str], targets: Sequence[str] | None = None) -> None:
        config = MirrorMakerConfig(properties)
        for note in config.unused():
            log.warning("%s", note)
        pairs = config.replicating_pairs(targets)
        flows = {
            pair: flow_settings(
                SourceConfig.parse(config.connector_config(pair, "source")),
                config.connector_config(pair, "source"),
                config.worker_config(pair),
                config.mirror,
            )
            for pair in pairs
        }
        self._spark = SparkSession(config.spark, len(flows))
        self._flows = flows
        self._runners: list[FlowRunner] = []
        self._stopping = threading.Event()

    def run(self) -> int:
        """Run until `stop`; the exit code: 0, or 1 if a flow or a partition had failed."""
        starter = threading.Thread(target=self._start_spark, name="spark start", daemon=True)
        starter.start()  # the JVM comes up while the flows look at their clusters
        self._runners = [
            FlowRunner(pair, settings, self._spark, len(self._flows))
            for pair, settings in self._flows.items()
        ]
        for runner in self._runners:
            runner.start()
        while not self._stopping.wait(0.25):
            if not any(runner.is_alive for runner in self._runners):
                break
        for runner in self._runners:
            runner.stop()
        for runner in self._runners:
            runner.join(15.0)
        self._spark.stop()
        return self._exit_code()

    def stop(self) -> None:
        self._stopping.set()

    def _start_spark(self) -> None:
        try:
            self._spark.start()
        except SparkError:
            log.debug("The flows will start Spark themselves and tell what is wrong.")

    def _exit_code(self) -> int:
        errors = [runner.error for runner in self._runners if runner.error is not None]
        if errors:
            return errors[0].exit_code
        failures = [failure for runner in self._runners for failure in runner.failures]
        for failure in failures:
            log.error("Not copied: %s", failure)
        return 1 if failures else 0
