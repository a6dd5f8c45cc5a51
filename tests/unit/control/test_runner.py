"""What stored configs of a flow may name: what its file does."""

from __future__ import annotations

import pytest

from sparkmirror.config.flows import MirrorMakerConfig, SourceAndTarget
from sparkmirror.config.providers import resolve_named
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.control.runner import MirrorMaker, worker_of
from sparkmirror.errors import ConfigError, QueryRefused

AB = SourceAndTarget("A", "B")
BASE = {
    "clusters": "A, B",
    "A.bootstrap.servers": "a:9092",
    "B.bootstrap.servers": "b:9092",
    "A->B.enabled": "true",
    "A->B.topics": "${env:TOPICS}",
}
ENVIRONMENT = {"TOPICS": "orders", "SECRET": "s"}


def resolved(worker: WorkerConfig, props: dict[str, str]) -> dict[str, str]:
    """As the worker does it with what is stored."""
    return resolve_named(props, worker.raw, ENVIRONMENT, worker.permits.references)


def test_a_stored_config_reads_no_variable_and_file_that_the_file_does_not_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOPICS", "orders")
    worker = worker_of(MirrorMakerConfig(BASE), AB)
    assert resolved(worker, {"topics": "${env:TOPICS}"}) == {"topics": "orders"}
    for text in ("${env:SECRET}", "x${file:/etc/passwd:root}", "${dir:/etc:hostname}"):
        with pytest.raises(ConfigError, match="does not contain that reference") as refused:
            resolved(worker, {"producer.override.client.id": text})
        assert "producer.override.client.id refers to ${" in str(refused.value)
    assert resolved(worker, {"x": "${other:a:b}"}) == {"x": "${other:a:b}"}  # of nobody


def test_a_file_that_names_its_providers_allows_what_they_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOPICS", "orders")
    kafka = "org.apache.kafka.common.config.provider.EnvVarConfigProvider"
    named = BASE | {"config.providers": "env", "config.providers.env.class": kafka}
    worker = worker_of(MirrorMakerConfig(named), AB)
    assert resolved(worker, {"x": "${env:SECRET}"}) == {"x": "s"}


def test_queries_of_stored_configs_call_no_function_that_the_file_does_not_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOPICS", "orders")
    mirror = MirrorMaker(BASE)
    with pytest.raises(QueryRefused, match=r"transform\.functions names pip:main"):
        mirror._spark.may_call("pip:main")
