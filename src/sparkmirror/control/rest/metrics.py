"""The endpoint `/metrics`: what this worker knows of the whole cluster comes in, Prometheus' text goes out.

The counts and the status of tasks have the names that the usual rules of the JMX exporter give to Connect's own metrics, so that
dashboards made for those show them; what Connect has no metric for is named `sparkmirror_…`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector
from starlette.responses import Response

from sparkmirror.config.keys_mirror import DELIVERY_KEY
from sparkmirror.control.herding import Herder
from sparkmirror.control.kinds import Kind, kind_of
from sparkmirror.control.states import ConnectorState, State
from sparkmirror.errors import ConfigError, NotFound

from .routes import Call, Route
from .status_page import known_statuses


class Metrics:
    """The endpoint, and what is collected there at each scrape."""

    def __init__(self, herder: Herder, worker_id: str) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_Statuses(herder, worker_id))

    def routes(self) -> list[Route]:
        return [Route("GET", "/metrics", self.metrics, consumes=None, produces="text/plain")]

    def metrics(self, call: Call) -> Response:
        return Response(generate_latest(self._registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)


class _Statuses(Collector):
    """Reads the statuses anew whenever it is asked."""

    def __init__(self, herder: Herder, worker_id: str) -> None:
        self._herder = herder
        self._worker_id = worker_id

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        statuses = known_statuses(self._herder)
        yield from _counts(statuses, self._worker_id)
        yield from _states(statuses)
        yield _restarts(statuses)
        yield _deliveries(self._herder, statuses)


def _counts(statuses: Iterable[ConnectorState], worker_id: str) -> Iterator[Metric]:
    """What runs on this worker alone, as Connect counts it."""
    connectors = sum(_is_here(each.state, each.worker_id, worker_id) for each in statuses)
    tasks = sum(
        _is_here(task.state, task.worker_id, worker_id) for each in statuses for task in each.tasks
    )
    yield GaugeMetricFamily(
        "kafka_connect_worker_connector_count",
        "Connectors that run on this worker.",
        value=connectors,
    )
    yield GaugeMetricFamily(
        "kafka_connect_worker_task_count", "Tasks that run on this worker.", value=tasks
    )


def _is_here(state: State, said_by: str, worker_id: str) -> bool:
    return said_by == worker_id and state is not State.UNASSIGNED


def _states(statuses: Iterable[ConnectorState]) -> Iterator[Metric]:
    connectors = GaugeMetricFamily(
        "sparkmirror_connector_status",
        "1 for the status that a connector has.",
        labels=("connector", "status", "worker"),
    )
    tasks = GaugeMetricFamily(
        "kafka_connect_connector_status",
        "1 for the status that a task has.",
        labels=("connector", "task", "status", "worker"),
    )
    for each in statuses:
        connectors.add_metric((each.name, each.state.lower(), each.worker_id), 1)
        for task in each.tasks:
            labels = (each.name, str(task.id), task.state.lower(), task.worker_id)
            tasks.add_metric(labels, 1)
    yield connectors
    yield tasks


def _restarts(statuses: Iterable[ConnectorState]) -> Metric:
    attempts = GaugeMetricFamily(
        "sparkmirror_restart_attempts",
        "How often a connector (task is empty) or task was started again by itself since it last ran well.",
        labels=("connector", "task"),
    )
    for each in statuses:
        attempts.add_metric((each.name, ""), each.restarts)
        for task in each.tasks:
            attempts.add_metric((each.name, str(task.id)), task.restarts)
    return attempts


def _deliveries(herder: Herder, statuses: Iterable[ConnectorState]) -> Metric:
    deliveries = GaugeMetricFamily(
        "sparkmirror_connector_delivery",
        "1 for the guarantee with which a source connector copies records.",
        labels=("connector", "delivery"),
    )
    for each in statuses:
        try:
            props = herder.connector_config(each.name)
            is_source = kind_of(props) is Kind.SOURCE
        except (NotFound, ConfigError):  # just deleted, or of a class that does not run here
            continue
        if is_source:
            delivery = props.get(DELIVERY_KEY.name) or DELIVERY_KEY.default
            deliveries.add_metric((each.name, str(delivery)), 1)
    return deliveries
