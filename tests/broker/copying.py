"""A copy task in a thread of the test, without Spark: the quick way to watch one partition at work."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from kafka_tools import wait_for

from sparkmirror.dataplane.copy import CopyTask, LedgerRow
from sparkmirror.dataplane.links.driver_link import DriverLink
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan, TaskPlan
from sparkmirror.dataplane.positions import StoreAddress
from sparkmirror.kafka import admin
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import ClientSettings, client_settings
from sparkmirror.tools.clusters import KafkaCluster

CONNECTOR = "MirrorSourceConnector"


class Killed(BaseException):
    """Ends a copy task in the middle of its loop, as a kill would: nothing is drained, no last position is written."""


def settings_of(alias: str, cluster: KafkaCluster) -> ClientSettings:
    return client_settings(alias, {"bootstrap.servers": cluster.bootstrap})


class Flow:
    """A flow A->B between two clusters with an offsets topic of its own, whose copy tasks a test starts and ends."""

    def __init__(
        self, source: KafkaCluster, target: KafkaCluster, name: str, offsets_partitions: int = 3
    ) -> None:
        self.source = Cluster(settings_of("A", source))
        self.target = Cluster(settings_of("B", target))
        self.offsets_topic = f"mm2-offsets.{name}.internal"
        self.source.refresh([])
        self.target.refresh([])
        factor = len(self.target.brokers)
        compact = {"cleanup.policy": "compact"}
        topic = NewTopic(self.offsets_topic, offsets_partitions, factor, compact)
        errors = admin.create_topics(self.target, [topic])
        assert not any(errors.values()), errors
        wait_for("the offsets topic is there", self._has_offsets_topic)

    def _has_offsets_topic(self) -> bool:
        self.target.refresh([self.offsets_topic])
        info = self.target.topics.get(self.offsets_topic)
        return info is not None and all(p.leader >= 0 for p in info.partitions.values())

    @property
    def store(self) -> StoreAddress:
        return StoreAddress(self.offsets_topic, CONNECTOR, "A")

    def plan(
        self,
        partitions: list[PartitionPlan],
        *,
        metadata_max_age: float | None = None,
        **settings: Any,
    ) -> TaskPlan:
        """A plan as the driver makes it, with nothing read of the positions yet (the task reads them itself)."""
        copy = replace(CopySettings(flush_interval=0.2, epoch=300.0), **settings)
        source = self.source.settings
        if metadata_max_age is not None:
            source = replace(source, metadata_max_age=metadata_max_age)
        return TaskPlan(
            flow="A->B",
            index=0,
            stamp=time.time_ns() // 1_000_000,
            source=source,
            target=self.target.settings,
            store=self.store,
            settings=copy,
            partitions=tuple(partitions),
        )

    def copying(self, partitions: list[PartitionPlan], **settings: Any) -> Copying:
        return Copying(self.plan(partitions, **settings))

    def close(self) -> None:
        self.source.close()
        self.target.close()


class Copying:
    """A running copy task: `with flow.copying(...) as task: wait_for(...)`.

    Leaving the block ends the task in order (drained, positions written); `abandon` ends it as a kill would, without the
    last positions.
    """

    def __init__(self, plan: TaskPlan, link: DriverLink | None = None) -> None:
        self._link = link
        self._stop = threading.Event()
        self._kill = threading.Event()
        self._goes_on = threading.Event()
        self._goes_on.set()
        self._is_held = threading.Event()
        self.task = CopyTask(plan, self._is_stopped, link=link)
        self.ledger: list[LedgerRow] = []
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def hold(self) -> None:
        """Keep it in the middle of its loop, as a machine that stands still would, until `release`."""
        self._is_held.clear()
        self._goes_on.clear()
        assert self._is_held.wait(30), "the copy task does not come round"

    def release(self) -> None:
        self._goes_on.set()

    def _is_stopped(self) -> bool:
        if not self._goes_on.is_set():
            self._is_held.set()
            self._goes_on.wait()
        if self._kill.is_set():
            raise Killed
        is_cut = self._link is not None and self._link.is_cut
        return is_cut or self._stop.is_set()

    def _run(self) -> None:
        try:
            self.ledger = self.task.run()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - handed to the test
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def abandon(self) -> None:
        """End it as a kill would: whatever was not written by then never will be."""
        self._kill.set()
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self.release()
        # Who resumes a topic that was deleted just then looks for it for up to 30 s.
        self._thread.join(60)
        assert not self._thread.is_alive(), "the copy task does not end"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self.error is not None and error is None:
            raise self.error

    def until(self, what: str, condition: Callable[[], bool], patience: float = 60.0) -> None:
        """Wait for a condition while the task lives."""
        deadline = time.monotonic() + patience
        while not condition():
            if self.error is not None:
                raise self.error
            assert time.monotonic() < deadline, f"after {patience:g} s still not: {what}"
            time.sleep(0.02)
