"""Dedicated mode: an `mm2.properties` in; a herder for each pair of clusters, all in one process, until they are told to stop.

Each herder is a full worker of its own group, as in MirrorMaker 2: nodes with the same file share the work. Its three connectors
come from the file; they are written to the config topic by whichever node leads.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import quote

from sparkmirror.config.checkpoint import CheckpointConfig
from sparkmirror.config.flows import ConnectorKind, MirrorMakerConfig, SourceAndTarget
from sparkmirror.config.heartbeat import HeartbeatConfig
from sparkmirror.config.link_ports import LinkPorts
from sparkmirror.config.permits import Permits
from sparkmirror.config.providers import STANDARD_PROVIDERS, references
from sparkmirror.config.query import QueryConfig
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.connectors.source_settings import SourceSettings, source_settings
from sparkmirror.errors import ConfigError, SparkMirrorError
from sparkmirror.kafka.cluster import back_off
from sparkmirror.spark.jvm import Jvm
from sparkmirror.spark.session import SparkSession

from .assembly import Assembled, distributed
from .file_connectors import FileConnectors
from .herder import Identity
from .operations import Operations
from .process import start_quietly
from .query_check import SparkCheck
from .rest.listeners import BoundListeners
from .rest.server import InternalRestServer
from .rest.settings import rest_settings
from .task_configs import NOT_USED

log = logging.getLogger(__name__)
_TICK_S = 0.25
_WAITS_S = (30.0, 300.0)
_CHECKS: Mapping[ConnectorKind, Callable[[Mapping[str, str], WorkerConfig], object]] = {
    "source": source_settings,
    "checkpoint": lambda props, _: CheckpointConfig.parse(props),
    "heartbeat": lambda props, _: HeartbeatConfig.parse(props),
}
"""Raise ConfigError before anything is started: the file is wrong, and its owner is looking."""


class FlowWorker:
    """The worker of one flow. One that ends with an error does not end the others: it is started again after a while."""

    def __init__(self, pair: SourceAndTarget, make: Callable[[], Assembled]) -> None:
        self.pair = pair
        self._make = make
        self._waits = back_off(*_WAITS_S)
        self._due: float | None = None
        self.herder = make().herder
        self._not_made: SparkMirrorError | None = None

    @property
    def error(self) -> SparkMirrorError | None:
        """Why it is down; None while it runs."""
        return self._not_made or self.herder.error

    def start(self) -> None:
        self.herder.start()

    def tend(self, now: float) -> None:
        """Notice that it has ended, or start it again when that is due."""
        if self._due is None:
            if self.herder.is_ready:
                self._waits = back_off(*_WAITS_S)
            if self.herder.wait(0) and self.herder.error is not None:
                self._wait(now)
        elif now >= self._due:
            self._start_again(now)

    def _wait(self, now: float) -> None:
        wait = next(self._waits)
        self._due = now + wait
        log.error("Flow %s is down; others continue. Next try in %.0f s.", self.pair, wait)

    def _start_again(self, now: float) -> None:
        try:
            self.herder = self._make().herder
        except SparkMirrorError as error:
            self._not_made = error
        except (OSError, ValueError) as error:  # what its file names is not what it was
            self._not_made = SparkMirrorError(f"Flow {self.pair} cannot be started: {error!r}")
        else:
            self._not_made = self._due = None
            self.herder.start()
            return
        log.error("%s", self._not_made)
        self._wait(now)


def worker_of(config: MirrorMakerConfig, pair: SourceAndTarget) -> WorkerConfig:
    """The config of a pair's worker.

    Whoever writes to the config topic is not whoever has written the file: a stored config may name and refer to what the file
    does, and no more.
    """
    worker = WorkerConfig.parse(
        {**STANDARD_PROVIDERS, **config.worker_config(pair), **config.mirror}
    )
    kinds = config.connector_kinds(pair)
    permits = worker.permits.trusting(config.connector_config(pair, kind) for kind in kinds)
    if not config.names_providers:
        written = (references(config.written_config(pair, kind)) for kind in _CHECKS)
        permits = replace(permits, references=frozenset().union(*written))
    return replace(worker, permits=permits)


class MirrorMaker:
    """All pairs of one properties file, in one process with one Spark session."""

    def __init__(
        self,
        properties: Mapping[str, str],
        targets: Sequence[str] | None = None,
        jvm: Jvm | None = None,
    ) -> None:
        config = MirrorMakerConfig(properties)
        for note in config.unused():
            log.warning("%s", note)
        self._pairs = config.pairs(targets)
        self._permits = Permits()
        self._spark = SparkSession(
            config.spark, jvm, LinkPorts.parse(config.mirror), self._require_function
        )
        self._stopping = threading.Event()
        self._queries: dict[SourceAndTarget, QueryConfig | None] = {}
        """Of the flows that copy."""
        self._bound: BoundListeners | None = None
        self._rest: InternalRestServer | None = None
        settings = rest_settings(config.rest, os.environ) if config.internal_rest else None
        if settings is not None:
            self._bound = BoundListeners(settings)
        self._herders: dict[tuple[str, str], Operations] = {}
        if settings is not None:
            self._rest = InternalRestServer(settings, self._herders, bound=self._bound)
        self._workers = [
            FlowWorker(pair, partial(self._assemble, config, pair)) for pair in self._pairs
        ]

    def _assemble(self, config: MirrorMakerConfig, pair: SourceAndTarget) -> Assembled:
        worker = worker_of(config, pair)
        kinds = config.connector_kinds(pair)
        given = {kind: config.connector_config(pair, kind) for kind in kinds}
        self._permits = self._permits.trusting(given.values())
        for kind, props in given.items():
            settings = _CHECKS[kind](props, worker)
            if isinstance(settings, SourceSettings):
                self._queries[pair] = settings.config.query
        configs = {kind: config.written_config(pair, kind) for kind in _CHECKS}
        file = FileConnectors(
            {configs[kind]["name"]: configs[kind] for kind in kinds},
            {
                props["name"]: {**props, "enabled": "false"}
                for kind, props in configs.items()
                if kind not in kinds
            },
        )
        found = distributed(worker, self._identity(pair), self._spark, file)
        self._herders[pair.source, pair.target] = found.operations
        if self._rest is not None:
            found.herder.call_with(self._rest.client)
        return found

    def _require_function(self, name: str) -> None:
        """QueryRefused for a function that no query of the file calls."""
        self._permits.require_function(name)

    def _identity(self, pair: SourceAndTarget) -> Identity:
        if self._bound is None:
            return Identity(NOT_USED, f"{socket.gethostname()}/{pair}/{uuid.uuid4()}")
        base = self._bound.advertised_url
        path = f"{quote(pair.source, safe='')}/{quote(pair.target, safe='')}/"
        return Identity(base + path, f"{base.split('/')[2]}/{pair}")

    def run(self) -> int:
        """Run until `stop`; the exit code: 0, or 1 if something had failed and not recovered.

        ConfigError, before anything is started, if Spark refuses a query.
        """
        queries = any(query is not None for query in self._queries.values())
        warm = partial(start_quietly, self._spark, queries=queries)
        threading.Thread(target=warm, daemon=True).start()
        self._require_queries()
        if self._rest is not None:
            self._rest.start()
        for worker in self._workers:
            worker.start()
        while not self._stopping.wait(_TICK_S) and self._is_copying:
            for worker in self._workers:
                worker.tend(time.monotonic())
        herders = [worker.herder for worker in self._workers]
        for herder in herders:
            herder.stop()
        for herder in herders:
            herder.await_end()
        if self._rest is not None:
            self._rest.stop()
        self._spark.stop()
        failures = [text for herder in herders for text in herder.failures()]
        down = [worker for worker in self._workers if worker.error is not None]
        for worker in down:
            log.error("Flow %s is down: %s", worker.pair, worker.error)
        for failure in failures:
            log.error("Not copied: %s", failure)
        errors = [worker.error for worker in down if worker.error is not None]
        return errors[0].exit_code if errors else int(bool(failures))

    @property
    def _is_copying(self) -> bool:
        """Whether a flow that copies has a worker that runs: else the process ends, for its supervisor to see."""
        copying = [worker for worker in self._workers if worker.pair in self._queries]
        return any(not worker.herder.wait(0) for worker in copying or self._workers)

    def stop(self) -> None:
        self._stopping.set()

    def _require_queries(self) -> None:
        """Only where every flow has a query: another is not kept waiting for Spark. There the tasks tell what is wrong."""
        queries = {pair: query for pair, query in self._queries.items() if query is not None}
        if not queries or len(queries) < len(self._queries):
            return
        ask, found = SparkCheck(self._spark), list[str]()

        def look() -> None:
            for pair, query in queries.items():
                for problem in ask(query):
                    found.append(f"{pair}: {problem.key}: {problem.message}")

        thread = threading.Thread(target=look, name="queries", daemon=True)
        thread.start()
        while thread.is_alive() and not self._stopping.is_set():
            thread.join(0.1)
        if found and not self._stopping.is_set():
            self._spark.stop()
            raise ConfigError("\n".join(found))
