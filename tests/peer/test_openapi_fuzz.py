"""Our worker against its own description (`/openapi.json`), fuzzed: answers are as described, 5xx only where Connect has them."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import SkipTest

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from our_connect import OurConnectWorker
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    response_schema_conformance,
    status_code_conformance,
)

from sparkmirror.control.rest import openapi
from sparkmirror.tools.clusters import KafkaCluster

_EXAMPLES = 10
_CALL_S = 100  # a little more than a worker's own request time-out
_NAME = "fuzzed"
_BODIES = (
    "POST /connectors|PUT .*/config|PATCH .*|PUT .*/validate|PUT /admin/loggers/.*|POST .*/tasks"
)


class Allowed(NamedTuple):
    """5xx answers that clients of Connect rely on: to which requests, with which message, and why."""

    requests: str
    message: str
    reason: str


_ALLOWED = (
    Allowed(
        _BODIES,
        r"Cannot read the JSON document: .*|The request has no .*|Task configs are a JSON array .*",
        "a body that is no JSON, or of the wrong shape, is 500 in Connect",
    ),
    Allowed(_BODIES, r"Unrecognized field .*", "an unknown field is 500 in Connect"),
    Allowed("POST /connectors", r"initial_state: .*", "an unknown state is 500 in Connect"),
    Allowed(
        "PATCH .*/offsets",
        r"Source (partition|partitions|offset) .*|Offsets may only contain .*",
        "what a connector says against offsets is 500 in Connect",
    ),
    Allowed(
        "PUT .*/validate",
        r"Connector config .* contains no connector type|Failed to find any class .*",
        "to validate the config of no connector is 500 in Connect",
    ),
    Allowed(
        "POST .*/restart",
        r"Failed to start (connector|task): .*",
        "what cannot be started again is told with 500 in Connect",
    ),
)


@pytest.fixture(scope="module")
def worker(
    peer_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OurConnectWorker]:
    group = f"fuzz-{uuid.uuid4().hex[:8]}"
    with OurConnectWorker(
        peer_cluster.bootstrap, tmp_path_factory.mktemp("fuzz"), group
    ) as running:
        config = {
            "connector.class": "MirrorHeartbeatConnector",
            "source.cluster.alias": "A",
            "source.cluster.bootstrap.servers": peer_cluster.bootstrap,
            "target.cluster.bootstrap.servers": peer_cluster.bootstrap,
            "heartbeats.topic.replication.factor": "1",
        }
        body = {"name": _NAME, "config": config, "initial_state": "STOPPED"}
        assert running.request("POST", "/connectors", body).status == 201
        yield running
        # Whatever came in, the worker is as it was.
        assert running.request("GET", "/health").body["status"] == "healthy"


_DOCUMENT: dict[str, Any] = json.loads(
    Path(openapi.__file__).with_name("openapi.json").read_bytes()
)
_SCHEMA = schemathesis.openapi.from_dict(_DOCUMENT)
_OPERATIONS = [found.ok() for found in _SCHEMA.get_all_operations() if isinstance(found, Ok)]
_OF_CONNECTORS = [
    operation
    for operation in _OPERATIONS
    if "{connector}" in operation.path and operation.method != "delete"
]
_CHECKS = [status_code_conformance, response_schema_conformance]


def _is_allowed(case: Any, response: Any) -> bool:
    asked = f"{case.method} {case.path}"
    message = response.json()["message"]
    return any(
        re.fullmatch(each.requests, asked) and re.fullmatch(each.message, message, re.DOTALL)
        for each in _ALLOWED
    )


def _fuzz(operation: Any, mode: GenerationMode, worker: OurConnectWorker, **path: str) -> None:
    """Send requests that follow the description, or break it; `path` says which variable parts of the path are fixed."""

    @settings(
        max_examples=_EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def send(case: Any) -> None:
        case.path_parameters = {**(case.path_parameters or {}), **path}
        response = case.call(base_url=worker.url, timeout=_CALL_S)
        if response.status_code >= 500:
            assert _is_allowed(case, response), f"{response.status_code}: {response.text}"
        case.validate_response(response, checks=_CHECKS)

    try:
        send()
    except (SkipTest, Unsatisfiable):
        pytest.skip("No request can be wrong here.")


_each_mode = pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)


@_each_mode
@pytest.mark.parametrize("operation", _OPERATIONS, ids=lambda each: each.label)
def test_any_request(operation: Any, mode: GenerationMode, worker: OurConnectWorker) -> None:
    _fuzz(operation, mode, worker)


@_each_mode
@pytest.mark.parametrize("operation", _OF_CONNECTORS, ids=lambda each: each.label)
def test_requests_about_a_connector_that_exists(
    operation: Any, mode: GenerationMode, worker: OurConnectWorker
) -> None:
    _fuzz(operation, mode, worker, connector=_NAME)


def test_the_description_is_the_one_that_is_served(worker: OurConnectWorker) -> None:
    assert worker.request("GET", "/openapi.json").body == _DOCUMENT
