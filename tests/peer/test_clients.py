"""Six real clients of Connect's REST, unmodified: each sees the same of a Connect worker and of ours."""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from client_homes import PYPI, command
from java_connect import ConnectWorker, JavaConnectWorker
from our_connect import OurConnectWorker
from validation_answers import DEFAULTS

from sparkmirror.config.plugins import STRUCTURED_TRANSFORMATIONS
from sparkmirror.tools.clusters import KafkaCluster

_PATIENCE_S = 180.0
_CLIENTS = (*PYPI, "npm", "maven")
# Steps that every client must have got through, so that nothing is compared with nothing.
_LEAST = {"list", "create", "get", "config", "tasks", "update", "delete", "absent"}
_DEFAULT_NAMES = ("default_value", "defaultValue", "value")
_RECOMMENDED = ("recommended_values", "recommendedValues")


class Pair(NamedTuple):
    java: ConnectWorker
    ours: ConnectWorker
    kafka: str


@pytest.fixture(scope="module")
def pair(peer_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory, kafka = tmp_path_factory.mktemp("clients"), peer_cluster.bootstrap
    group = f"clients-{uuid.uuid4().hex[:8]}"
    with (
        JavaConnectWorker(kafka, directory, f"{group}-java") as java,
        OurConnectWorker(kafka, directory, f"{group}-ours") as ours,
    ):
        yield Pair(java, ours, kafka)


def _story(client: str, worker: ConnectWorker, kafka: str) -> list[Any]:
    """What a client saw, step by step."""
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorHeartbeatConnector",
        "name": client,
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": kafka,
        "target.cluster.bootstrap.servers": kafka,
        "heartbeats.topic.replication.factor": "1",
    }
    done = subprocess.run(
        [*command(client), worker.url, client, json.dumps(config)],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=_PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = done.stdout.replace(worker.worker_id, "@WORKER@").replace(str(worker.port), "@PORT@")
    return [[step, _normal(outcome)] for step, outcome in json.loads(told)]


def _normal(found: Any) -> Any:
    """What was seen, without texts for people, our defaults, and steps that we do not have."""
    if isinstance(found, dict):
        return _normal_fields(found)
    if isinstance(found, list):
        kept = [_normal(each) for each in found if not _is_structured(each)]
        return sorted(kept) if kept and all(isinstance(each, str) for each in kept) else kept
    if isinstance(found, str) and found.lstrip()[:1] in ("{", "["):
        try:
            return _normal(json.loads(found))
        except ValueError:
            return found
    return found


def _normal_fields(found: dict[str, Any]) -> dict[str, Any]:
    shown = {name: _normal(value) for name, value in found.items() if name != "documentation"}
    java, ours = DEFAULTS.get(str(found.get("name")), (None, None))
    for name in _DEFAULT_NAMES:
        if java is not None and shown.get(name) == java:
            shown[name] = ours
    return shown


def _is_structured(found: Any) -> bool:
    """Whether this is a transformation that we do not have, by its name or in a list of plugins."""
    name = found.get("class", found.get("className")) if isinstance(found, dict) else found
    return isinstance(name, str) and name in STRUCTURED_TRANSFORMATIONS


@pytest.mark.timeout(900)  # clients are fetched when they are first needed
@pytest.mark.parametrize("client", _CLIENTS)
def test_a_client_sees_the_same(client: str, pair: Pair) -> None:
    java = _story(client, pair.java, pair.kafka)
    ours = _story(client, pair.ours, pair.kafka)
    assert {step for step, _ in java} >= _LEAST
    for theirs, own in zip(java, ours, strict=True):
        assert own == theirs


def test_a_put_without_a_body_as_a_form_is_refused(pair: Pair) -> None:
    """What npm's client sends to pause, resume and stop; that both do the same is seen above."""
    seen = dict(_story("npm", pair.ours, pair.kafka))
    for step in ("pause", "resume", "stop", "reset topics"):
        assert seen[step]["status"] == 415
