"""What a worker's clients are given, and what of it may be shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparkmirror.config.masking import is_secret, masked
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.config.worker_clients import data_producer, login_problem, worker_client
from sparkmirror.errors import ConfigError

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
WORKER = WorkerConfig.parse(
    {
        "bootstrap.servers": "own:9092",
        "group.id": "g",
        "key.converter": BYTES,
        "value.converter": BYTES,
        "key.converter.schemas.enable": "false",
        "config.storage.topic": "configs",
        "offset.storage.topic": "offsets",
        "status.storage.topic": "status",
        "listeners": "http://:1",
        "listeners.https.ssl.key.password": "rest",
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "worker",
        "request.timeout.ms": "7",
        "max.request.size": "9",
        "producer.security.protocol": "SSL",
        "producer.acks": "1",
        "consumer.fetch.max.bytes": "2",
        "admin.retries": "3",
        "spark.master": "local",
        "mirror.epoch.ms": "1",
    }
)


def test_the_workers_own_clients_get_what_stands_at_the_top() -> None:
    assert worker_client(WORKER, "worker") == {
        "bootstrap.servers": "own:9092",
        "group.id": "g",
        "security.protocol": "SASL_SSL",
        "sasl.jaas.config": "worker",
        "request.timeout.ms": "7",
        "max.request.size": "9",
    }


def test_connectors_clients_get_their_own_kind_and_admins_the_top_too() -> None:
    assert worker_client(WORKER, "producer") == {
        "bootstrap.servers": "own:9092",
        "security.protocol": "SSL",
        "acks": "1",
    }
    assert worker_client(WORKER, "consumer") == {
        "bootstrap.servers": "own:9092",
        "fetch.max.bytes": "2",
    }
    admin = worker_client(WORKER, "admin")
    assert (admin["retries"], admin["sasl.jaas.config"]) == ("3", "worker")


def test_connectors_override() -> None:
    props = {"producer.override.acks": "all", "producer.acks": "0"}
    assert data_producer(WORKER, props)["acks"] == "all"


def test_copies_go_where_the_override_says() -> None:
    props = {
        "producer.override.bootstrap.servers": "there:1",
        "target.cluster.bootstrap.servers": "elsewhere:1",
    }
    found = data_producer(WORKER, props)
    assert (found["bootstrap.servers"], found["security.protocol"]) == ("there:1", "SSL")


def test_else_to_the_target_cluster_and_never_to_the_source_by_accident() -> None:
    props = {
        "target.cluster.bootstrap.servers": "target:1",
        "target.cluster.sasl.mechanism": "PLAIN",
        "target.cluster.no.client.key": "x",
        "producer.override.linger.ms": "5",
    }
    assert data_producer(WORKER, props) == {
        "bootstrap.servers": "target:1",
        "sasl.mechanism": "PLAIN",
        "acks": "1",
        "linger.ms": "5",
    }


def test_else_to_the_workers_own_cluster() -> None:
    assert data_producer(WORKER, {})["bootstrap.servers"] == "own:9092"


def test_secrets_are_masked_wherever_they_are_prefixed() -> None:
    secret = {
        "ssl.key.password": "x",
        "source.cluster.sasl.jaas.config": "x",
        "producer.override.ssl.truststore.password": "x",
        "listeners.https.ssl.keystore.key": "x",
        "config.providers.vault.param.token": "x",
        "my-client-secret": "x",
        "some.PASSWORD": "x",
    }
    public = {
        "name": "m",
        "sasl.oauthbearer.token.endpoint.url": "https://x",
        "topics": "password",
        "key.converter": None,
        "ssl.keystore.location": "/x",
    }
    assert masked(secret | public) == dict.fromkeys(secret, "[hidden]") | public
    assert not is_secret("password.file")


LOGGING_IN = {
    **WORKER.properties,
    "producer.security.protocol": "SASL_SSL",
    "producer.sasl.mechanism": "PLAIN",
    "producer.sasl.jaas.config": "the worker's",
    "producer.ssl.truststore.location": "/ca.jks",
}
FOREIGN = {"producer.override.bootstrap.servers": "own:9092, theirs:1"}


def test_the_workers_login_is_not_sent_to_servers_that_a_config_names() -> None:
    worker = WorkerConfig.parse(LOGGING_IN)
    with pytest.raises(ConfigError, match="names theirs:1, which is no server of the worker's own"):
        data_producer(worker, FOREIGN)
    problem = login_problem(worker, FOREIGN)
    assert problem is not None
    assert problem.key == "producer.override.bootstrap.servers"
    assert "client.login.allowed.servers" in problem.message
    said = {**FOREIGN, "producer.override.security.protocol": "SASL_PLAINTEXT"}
    found = data_producer(worker, said)
    assert not any(name.startswith("sasl.") for name in found)
    assert found["ssl.truststore.location"] == "/ca.jks"  # nothing can be done with that
    named = {**said, "producer.override.sasl.jaas.config": "of the config"}
    assert data_producer(worker, named)["sasl.jaas.config"] == "of the config"


def test_who_owns_the_worker_may_list_servers_that_get_its_login() -> None:
    for worker in (
        WorkerConfig.parse({**LOGGING_IN, "client.login.allowed.servers": "theirs:1"}),
        replace(
            WorkerConfig.parse(LOGGING_IN),
            permits=WorkerConfig.parse(LOGGING_IN).permits.trusting([FOREIGN]),
        ),
    ):
        assert login_problem(worker, FOREIGN) is None
        assert data_producer(worker, FOREIGN)["sasl.jaas.config"] == "the worker's"
    own = {"producer.override.bootstrap.servers": "own:9092", "producer.override.acks": "1"}
    assert data_producer(WorkerConfig.parse(LOGGING_IN), own)["sasl.jaas.config"] == "the worker's"
