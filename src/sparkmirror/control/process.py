"""A Connect worker as a process: worker properties in; a herder, its REST server and its Spark session run until told to stop."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sparkmirror.config.connect_validation import require_plugin, validate
from sparkmirror.config.connector_rules import QueryCheck
from sparkmirror.config.link_ports import LinkPorts
from sparkmirror.config.plugins import list_plugins, plugin_definitions
from sparkmirror.config.providers import resolve_named
from sparkmirror.config.query import SQL, SQL_FILE
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.errors import SparkMirrorError
from sparkmirror.spark.session import SparkSession
from sparkmirror.veil import VEIL

from .assembly import Assembled, distributed, standalone, with_standalone_topic
from .herder import Identity
from .rest.listeners import BoundListeners
from .rest.server import RestServer
from .rest.settings import rest_settings

log = logging.getLogger(__name__)
_REST_PATIENCE_S = 2.0


class KnownPlugins:
    """What this worker can run, for REST."""

    def __init__(self, config: WorkerConfig, queries: QueryCheck | None = None) -> None:
        self._config = config
        self._queries = queries

    def list_plugins(self, connectors_only: bool) -> list[dict[str, Any]]:
        return list_plugins(connectors_only)

    def plugin_definitions(self, name: str, version: str | None) -> list[dict[str, Any]]:
        return plugin_definitions(name, version)

    def validate(self, plugin: str, config: Mapping[str, str | None]) -> dict[str, Any]:
        require_plugin(plugin, config)
        return validate(config, self._config, self._queries)


class ConnectProcess:
    """One worker, from start to stop."""

    def __init__(self, config: WorkerConfig, connectors: Sequence[Mapping[str, str]] = ()) -> None:
        """`connectors`, from files of the worker's owner, are created first (standalone)."""
        VEIL.learn(config.properties)
        self._connectors = connectors
        known = [resolve_named(props, config.raw) for props in connectors]
        config = replace(config, permits=config.permits.trusting([*connectors, *known]))
        for note in config.notes:
            log.warning("%s", note)
        self._config = with_standalone_topic(config) if config.standalone else config
        settings = rest_settings(config.properties, os.environ)
        self._bound = BoundListeners(settings)
        self._spark = SparkSession(
            config.spark,
            ports=LinkPorts.parse(config.mirror),
            may_call=config.permits.require_function,
        )
        self._stopping = threading.Event()
        self._error: SparkMirrorError | None = None
        url = self._bound.advertised_url
        self.identity = Identity(url, url.split("/")[2])
        self._assembled = self._assemble(may_be_unsigned=not settings.has_login)
        plugins = KnownPlugins(self._config, self._assembled.queries)
        self._rest = RestServer(
            settings,
            self._assembled.operations,
            plugins,
            has_peers=not config.standalone and (config.signs or not settings.has_login),
            bound=self._bound,
        )
        self._assembled.herder.call_with(self._rest.client)

    def _assemble(self, *, may_be_unsigned: bool) -> Assembled:
        if self._config.standalone:
            return standalone(self._config, self.identity, self._spark)
        return distributed(
            self._config, self.identity, self._spark, may_be_unsigned=may_be_unsigned
        )

    def run(self) -> int:
        """Run until `stop`; the exit code."""
        herder = self._assembled.herder
        warm = threading.Thread(target=start_quietly, args=(self._spark,), daemon=True)
        warm.start()  # the JVM comes up while the internal topics are read
        self._rest.start()
        herder.start()
        creator = threading.Thread(target=self._create, daemon=True)
        creator.start()
        while not self._stopping.wait(0.25) and not herder.wait(0):
            pass
        herder.stop()
        herder.await_end()
        self._rest.stop(_REST_PATIENCE_S)
        self._spark.stop()
        error = herder.error or self._error
        return 0 if error is None else error.exit_code

    def stop(self) -> None:
        self._stopping.set()

    def _create(self) -> None:
        # Those without a query first: they need not wait for Spark.
        for props in sorted(self._connectors, key=lambda each: SQL in each or SQL_FILE in each):
            name = props.get("name", "")
            try:
                self._assembled.operations.put_connector(name, props, None, may_replace=True)
            except SparkMirrorError as error:
                log.error("Connector %s was not created: %s", name or "without a name", error)
                if not self._stopping.is_set():
                    self._error = error
                self.stop()
                return
            log.info("Created connector %s.", name)


def start_quietly(spark: SparkSession, *, queries: bool = False) -> None:
    """Start Spark ahead of its first job; whoever submits that will say what is wrong, if something is."""
    try:
        spark.start(queries=queries)
    except SparkMirrorError as error:
        log.info("Spark could not be started ahead of its first job, which tries again: %s", error)
