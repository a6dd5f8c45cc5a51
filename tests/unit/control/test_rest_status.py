"""The page and the metrics show every connector and task, with what it took to keep them running."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sparkmirror.control.rest.status_page import page
from sparkmirror.control.states import ConnectorState, State, TaskState
from sparkmirror.errors import NotFound
from tests.unit.control.rest_serving import Served, serving

FAILED = ConnectorState(
    "mm2 <msc>",
    State.RUNNING,
    "w:1",
    (
        TaskState(0, State.FAILED, "w:1", "Too large: <10>\n  at copy", restarts=4),
        TaskState(1, State.RUNNING, "w:2", note="The query applies from t-0 offset <7> on."),
    ),
    restarts=1,
    note="Group offsets of t are translated by time only.",
)


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as made:
        yield made


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_tell_states_and_attempts(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.herder, "connectors", lambda: ["mm2 <msc>", "gone"])
    known = {FAILED.name: FAILED}
    real = served.herder.connector_status
    monkeypatch.setattr(
        served.herder, "connector_status", lambda name: known.get(name) or real(name)
    )
    answer = served.call("GET", "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = samples(answer.body.decode())
    assert found["sparkmirror_restart_attempts", "mm2 <msc>", ""] == 1
    assert found["sparkmirror_restart_attempts", "mm2 <msc>", "0"] == 4
    assert found["sparkmirror_restart_attempts", "mm2 <msc>", "1"] == 0
    assert found["kafka_connect_connector_status", "mm2 <msc>", "failed", "0", "w:1"] == 1
    assert found["sparkmirror_connector_status", "mm2 <msc>", "running", "w:1"] == 1


def test_metrics_tell_the_delivery_of_source_connectors(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = "org.apache.kafka.connect.mirror."
    configs = {
        "a": {"connector.class": package + "MirrorSourceConnector"},
        "b": {"connector.class": "MirrorSource", "mirror.delivery": "at-least-once"},
        "c": {"connector.class": package + "MirrorCheckpointConnector"},
        "odd": {"connector.class": "com.example.SomebodysConnector"},
    }

    def config(name: str) -> dict[str, str]:
        if name not in configs:
            raise NotFound(f"Connector {name} not found")
        return configs[name]

    herder = served.herder
    monkeypatch.setattr(herder, "connectors", lambda: ["a", "b", "c", "odd", "gone"])
    monkeypatch.setattr(herder, "connector_config", config)
    monkeypatch.setattr(
        herder, "connector_status", lambda name: ConnectorState(name, State.RUNNING, "w:1", ())
    )
    found = samples(served.call("GET", "/metrics").body.decode())
    deliveries = {key for key in found if key[0] == "sparkmirror_connector_delivery"}
    assert deliveries == {
        ("sparkmirror_connector_delivery", "a", "exactly-once"),
        ("sparkmirror_connector_delivery", "b", "at-least-once"),
    }


def test_counts_are_those_of_this_worker(served: Served) -> None:
    worker = served.server.worker_id
    mine = ConnectorState("a", State.RUNNING, worker, (TaskState(0, State.PAUSED, worker),))
    lost = ConnectorState("b", State.UNASSIGNED, worker, (TaskState(0, State.RUNNING, "w:2"),))
    served.herder.connectors = lambda: ["a", "b"]  # type: ignore[method-assign]
    served.herder.connector_status = lambda name: mine if name == "a" else lost  # type: ignore[method-assign]
    found = samples(served.call("GET", "/metrics").body.decode())
    assert found[("kafka_connect_worker_connector_count",)] == 1
    assert found[("kafka_connect_worker_task_count",)] == 1


def test_the_page_shows_attempts_and_reasons_and_nothing_breaks_it() -> None:
    text = page([FAILED], "w:1")
    assert "1 connector(s) with 2 task(s), 1 FAILED." in text
    assert "mm2 &lt;msc&gt;" in text
    assert "Too large: &lt;10&gt;" in text
    assert '<td class="number">4</td>' in text
    assert "by time only" in text
    assert "<td>The query applies from t-0 offset &lt;7&gt; on.</td>" in text
    assert "<10>" not in text


def test_the_page_is_served(served: Served) -> None:
    answer = served.call("GET", "/status")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "0 connector(s)" in answer.body.decode()
