"""Files that travel with the plans of a connector: plans in, the same with the contents of keystores and the like out.

On a cluster, executors need not have the driver's files. Copy tasks keep what their plan holds: when a file has changed, the job
is planned again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from sparkmirror.dataplane.plan import TaskPlan
from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.files import ClientFiles, stamp
from sparkmirror.kafka.access.sent_files import named_files, read_files
from sparkmirror.kafka.settings import ClientSettings

log = logging.getLogger(__name__)
_LEAST_S = 60.0
"""The least time between two jobs that end for a changed file: some token files are written every few seconds."""


class PlanFiles:
    """The files of one connector.

    Invariant: a file that was sent once and cannot be used right now (missing, half written) does not stop the flow: its last
    good content is sent again.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told_at = -_LEAST_S
        self._sent: dict[ClientSettings, ClientFiles] = {}
        self._followed: list[str] = []
        self._read_at: list[Hashable] = []
        """Stamps of the followed files when they were read last."""
        self._seen: list[Hashable] = []
        """Their stamps when `changed` was asked last."""

    def put_into(self, plans: Sequence[TaskPlan]) -> list[TaskPlan]:
        """The plans with the contents of all files; ConfigError for one that could never be used."""
        clusters = {cluster for plan in plans for cluster in plan.clients}
        named = {file for cluster in clusters for file in named_files(cluster)}
        self._followed = sorted({file.location for file in named if file.is_followed})
        self._read_at = self._seen = self._stamps()
        self._sent = {cluster: self._read(cluster) for cluster in clusters}
        with_files = {
            cluster: replace(cluster, security=replace(cluster.security, files=files))
            for cluster, files in self._sent.items()
        }
        return [
            replace(
                plan,
                source=with_files[plan.source],
                target=with_files[plan.target],
                store_cluster=plan.store_cluster and with_files[plan.store_cluster],
            )
            for plan in plans
        ]

    def changed(self) -> list[str]:
        """The files whose new contents running copy tasks should get; to be asked once a second.

        A file counts when it has not changed since it was asked for before, so that it is written to its end, and can be used.
        """
        before, self._seen = self._seen, self._stamps()
        if self._seen != before or self._seen == self._read_at:
            return []
        if self._clock() - self._told_at < _LEAST_S:
            return []
        self._read_at = self._seen
        news = {
            location
            for cluster, sent in self._sent.items()
            for location, content in self._read(cluster).sent
            if (location, content) not in sent.sent
        }
        followed = sorted(news.intersection(self._followed))
        if followed:
            self._told_at = self._clock()
        return followed

    def _stamps(self) -> list[Hashable]:
        return [stamp(location) for location in self._followed]

    def _read(self, cluster: ClientSettings) -> ClientFiles:
        before = self._sent.get(cluster)
        try:
            return read_files(cluster)
        except ConfigError as error:
            if before is None:
                raise
            log.warning("%s Copy tasks use what was read before.", error)
            return before
