"""Worker properties, from files and environments that people have, as typed settings."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sparkmirror.config.environment import with_environment
from sparkmirror.config.keys_worker import DISTRIBUTED_KEYS, STANDALONE_KEYS
from sparkmirror.config.listeners import HeaderRule, Listener
from sparkmirror.config.rest import BASIC_AUTH
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.errors import ConfigError

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
LEAST = {
    "bootstrap.servers": "broker:9092",
    "group.id": "g",
    "key.converter": BYTES,
    "value.converter": BYTES,
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "status",
}
# A worker configured by its environment alone, as in a compose file.
CONTAINER = {
    "CONNECT_BOOTSTRAP_SERVERS": "broker:9092",
    "CONNECT_REST_PORT": "28082",
    "CONNECT_GROUP_ID": '"quickstart"',
    "CONNECT_CONFIG_STORAGE_TOPIC": "quickstart_config",
    "CONNECT_OFFSET_STORAGE_TOPIC": "quickstart_offset",
    "CONNECT_STATUS_STORAGE_TOPIC": "quickstart_status",
    "CONNECT_CONFIG_STORAGE_REPLICATION_FACTOR": "1",
    "CONNECT_OFFSET_STORAGE_REPLICATION_FACTOR": "1",
    "CONNECT_STATUS_STORAGE_REPLICATION_FACTOR": "1",
    "CONNECT_KEY_CONVERTER": BYTES,
    "CONNECT_VALUE_CONVERTER": BYTES,
    "CONNECT_REST_ADVERTISED_HOST_NAME": "connect",
    "CONNECT_CONNECTOR_CLIENT_CONFIG_OVERRIDE_POLICY": "All",
    "CONNECT_LOG4J_ROOT_LOGLEVEL": "WARN",
    "CONNECT_PLUGIN_PATH": "/usr/share/java",
    "PATH": "/bin",
}
# A file from before Kafka 3.0.
OLD_FILE = LEAST | {
    "group.id": "connect-cluster",
    "key.converter": JSON,
    "value.converter": JSON,
    "key.converter.schemas.enable": "true",
    "value.converter.schemas.enable": "true",
    "internal.key.converter": JSON,
    "internal.value.converter": JSON,
    "internal.key.converter.schemas.enable": "false",
    "internal.value.converter.schemas.enable": "false",
    "offset.flush.interval.ms": "10000",
    "rest.port": "8083",
    "rest.host.name": "localhost",
}


def parsed(**changes: str) -> WorkerConfig:
    return WorkerConfig.parse(LEAST | {k.replace("__", "."): v for k, v in changes.items()})


def refused(props: Mapping[str, str]) -> str:
    with pytest.raises(ConfigError) as raised:
        WorkerConfig.parse(props)
    return raised.value.message


def test_defaults_are_kafkas_but_for_how_often_positions_are_written() -> None:
    config = WorkerConfig.parse(LEAST)
    assert (config.bootstrap, config.group_id, config.client_id) == ("broker:9092", "g", "")
    assert (config.session_timeout_ms, config.heartbeat_interval_ms) == (10_000, 3_000)
    assert (config.rebalance_timeout_ms, config.scheduled_rebalance_max_delay_ms) == (
        60_000,
        300_000,
    )
    assert (config.worker_sync_timeout_ms, config.worker_unsync_backoff_ms) == (3_000, 300_000)
    assert (config.offset_flush_interval_ms, config.offset_flush_timeout_ms) == (1_000, 5_000)
    assert config.task_shutdown_graceful_timeout_ms == 5_000
    assert (config.connect_protocol, config.exactly_once) == ("sessioned", "disabled")
    assert config.header_converter.endswith("SimpleHeaderConverter")
    assert (config.topic_creation, config.topic_tracking, config.topic_tracking_allow_reset) == (
        True,
        True,
        True,
    )
    assert config.override_policy.name == "All"
    assert config.rest.listeners == (Listener("http", "", 8083),)
    assert config.rest.admin_listeners is None
    assert config.signing.signature_algorithm == config.signing.key_algorithm == "HmacSHA256"
    assert (config.signing.key_ttl_ms, config.signing.key_size) == (3_600_000, None)
    assert config.restart.enabled
    assert config.notes == ()
    differing = {k.name: k.mm2_default for k in DISTRIBUTED_KEYS if k.mm2_default is not None}
    assert differing == {"offset.flush.interval.ms": "60000"}


@pytest.mark.parametrize("keys", [DISTRIBUTED_KEYS, STANDALONE_KEYS])
def test_every_key_is_unique_and_documented(keys: tuple[object, ...]) -> None:
    names = [getattr(key, "name", "") for key in keys]
    assert len(set(names)) == len(names)
    assert all(getattr(key, "doc", "") for key in keys)


def test_storage_topics_take_any_topic_property() -> None:
    config = WorkerConfig.parse(
        LEAST
        | {
            "offset.storage.partitions": "7",
            "offset.storage.replication.factor": "1",
            "offset.storage.segment.bytes": "1048576",
            "offset.storage.cleanup.policy": "delete",
            "config.storage.partitions": "9",
            "status.storage.replication.factor": "-1",
            "status.storage.min.insync.replicas": "2",
        }
    )
    offsets, configs, status = config.offset_storage, config.config_storage, config.status_storage
    assert (offsets.name, offsets.partitions, offsets.replication_factor) == ("offsets", 7, 1)
    assert offsets.configs == {"segment.bytes": "1048576"}
    assert offsets.replication_factor_explicit
    assert (configs.name, configs.partitions, configs.replication_factor) == ("configs", 1, 3)
    assert not configs.replication_factor_explicit
    assert (status.partitions, status.replication_factor) == (5, -1)
    assert status.configs == {"min.insync.replicas": "2"}
    assert sorted(config.notes) == [
        "config.storage.partitions is ignored: the config topic has one partition.",
        "offset.storage.cleanup.policy is ignored: the worker's topics are compacted.",
    ]


def test_a_worker_can_be_configured_by_its_environment_alone() -> None:
    config = WorkerConfig.parse(with_environment({}, CONTAINER))
    assert config.group_id == '"quickstart"', "quotes are part of the value"
    assert config.rest.listeners == (Listener("http", "", 28082),)
    assert config.rest.advertised_host == "connect"
    assert config.config_storage.replication_factor == 1
    assert config.override_policy.allowed is None
    assert config.notes == ("rest.port is an old key: read as listeners=http://:28082.",)


def test_old_keys_are_taken_with_a_note() -> None:
    config = WorkerConfig.parse(OLD_FILE)
    assert config.rest.listeners == (Listener("http", "localhost", 8083),)
    assert (config.key_converter, config.offset_flush_interval_ms) == (JSON, 10_000)
    assert [note.split()[0] for note in config.notes] == [
        "internal.key.converter",
        "internal.value.converter",
        "internal.key.converter.schemas.enable",
        "internal.value.converter.schemas.enable",
        "rest.port",
        "rest.host.name",
    ]
    assert "internal.key.converter" not in config.properties
    assert config.raw == OLD_FILE


def test_listeners_beat_the_old_keys() -> None:
    config = parsed(listeners="http://a:1,https://b:2", rest__port="9")
    assert [str(listener) for listener in config.rest.listeners] == ["http://a:1", "https://b:2"]
    assert config.notes == ("rest.port is an old key and has no effect, because listeners is set.",)


def test_everything_wrong_is_told_at_once() -> None:
    message = refused(
        {
            "group.id": "g",
            "key.converter": BYTES,
            "session.timeout.ms": "soon",
            "offset.storage.partitions": "0",
            "connect.protocol": "lazy",
            "listeners": "ftp://x:1",
            "rest.advertised.listener": "ftp",
            "rest.extension.classes": "com.acme.Auth",
            "inter.worker.signature.algorithm": "HmacSHA512",
            "connector.client.config.override.policy": "com.acme.Policy",
            "response.http.headers.config": "put X:1",
        }
    )
    assert message.startswith("Worker config: 14 settings are wrong:")
    for part in (
        '"bootstrap.servers"',
        '"value.converter"',
        '"config.storage.topic"',
        '"offset.storage.topic"',
        '"status.storage.topic"',
        "session.timeout.ms: Not a number of type INT",
        "offset.storage.partitions: Number of partitions must be positive",
        "connect.protocol: String must be one of",
        "Invalid value ftp://x:1 for configuration listeners",
        "rest.advertised.listener: Use http or https",
        "com.acme.Auth, a Java class, which cannot be loaded",
        "must be present in inter.worker.verification.algorithms list",
        "override.policy: Use one of All, None, Principal, Allowlist",
        "'put' is none of set, add, setDate, addDate",
    ):
        assert part in message


def test_unknown_keys_are_noted_with_a_guess_and_families_are_known() -> None:
    config = WorkerConfig.parse(
        LEAST
        | {
            "offset.flush.intervall.ms": "1",
            "qwertz": "1",
            "producer.x": "1",
            "consumer.x": "1",
            "admin.x": "1",
            "ssl.x": "1",
            "sasl.x": "1",
            "listeners.https.ssl.x": "1",
            "config.providers.x.class": "1",
            "spark.master": "local[2]",
            "mirror.epoch.ms": "1",
            "topic.creation.x": "1",
            "metrics.context.x": "1",
            "key.converter.schemas.enable": "false",
            "max.request.size": "1",
            "fetch.max.bytes": "1",
        }
    )
    assert config.notes == (
        "offset.flush.intervall.ms is not a setting of a worker. "
        "Did you mean offset.flush.interval.ms?",
        "qwertz is not a setting of a worker.",
    )
    assert config.spark == {"spark.master": "local[2]"}
    assert config.mirror == {"mirror.epoch.ms": "1"}


def test_a_standalone_worker_keeps_positions_in_a_file() -> None:
    props = {
        "bootstrap.servers": "b:1",
        "key.converter": BYTES,
        "value.converter": BYTES,
        "offset.storage.file.filename": "/var/lib/offsets",
        "group.id": "ignored",
    }
    config = WorkerConfig.parse(props, standalone=True)
    assert (config.standalone, config.offset_file) == (True, "/var/lib/offsets")
    assert (config.group_id, config.offset_storage.name) == ("", "")
    assert config.rest.listeners == (Listener("http", "", 8083),)
    with pytest.raises(ConfigError, match=r"offset\.storage\.file\.filename"):
        WorkerConfig.parse(LEAST, standalone=True)
    distributed = WorkerConfig.parse(LEAST | {"offset.storage.file.filename": "/x"})
    assert distributed.offset_storage.configs == {}
    assert "offset.storage.file.filename is ignored" in distributed.notes[0]


def test_references_are_resolved_for_the_worker_itself() -> None:
    props = LEAST | {"ssl.key.password": "${env:SECRET}", "config.providers": "env"}
    config = WorkerConfig.parse(props, environment={"SECRET": "s3cret"})
    assert config.properties["ssl.key.password"] == "s3cret"
    assert config.raw["ssl.key.password"] == "${env:SECRET}"


def test_rest_settings() -> None:
    rest = WorkerConfig.parse(
        LEAST
        | {
            "listeners": "HTTP://:0,https://[::1]:8443",
            "admin.listeners": "",
            "rest.advertised.host.name": "me",
            "rest.advertised.port": "80",
            "rest.advertised.listener": "HTTPS",
            "access.control.allow.origin": "*",
            "access.control.allow.methods": "GET,PUT",
            "response.http.headers.config": 'set X-A:1, "add Y:a, b"',
            "rest.extension.classes": "BasicAuthSecurityRestExtension",
            "ssl.keystore.location": "/top",
            "listeners.https.ssl.keystore.location": "/rest",
        }
    ).rest
    assert rest.listeners == (Listener("http", "", 0), Listener("https", "::1", 8443))
    assert rest.admin_listeners == ()
    assert (rest.advertised_host, rest.advertised_port) == ("me", 80)
    assert rest.advertised_listener == "https"
    assert (rest.allow_origin, rest.allow_methods) == ("*", "GET,PUT")
    assert rest.response_headers == (HeaderRule("set", "X-A", "1"), HeaderRule("add", "Y", "a, b"))
    assert rest.extension_classes == (BASIC_AUTH,)
    assert rest.tls == {"ssl.keystore.location": "/rest"}
    assert rest.admin_tls == {"ssl.keystore.location": "/top"}, "no key of its own: the worker's"


def test_algorithms_must_be_known() -> None:
    config = parsed(
        inter__worker__signature__algorithm="HmacSHA512",
        inter__worker__verification__algorithms="HmacSHA256,HmacSHA512",
        inter__worker__key__size="256",
    )
    assert config.signing.verification_algorithms == ("HmacSHA256", "HmacSHA512")
    assert config.signing.key_size == 256
    assert "Use one of hmacmd5" in refused(LEAST | {"inter.worker.key.generation.algorithm": "AES"})


@pytest.mark.parametrize(
    ("text", "name", "allowed"),
    [
        ("All", "All", None),
        ("None", "None", frozenset()),
        ("Principal", "Principal", {"sasl.jaas.config", "sasl.mechanism", "security.protocol"}),
        ("Allowlist", "Allowlist", {"acks", "linger.ms"}),
        (
            "org.apache.kafka.connect.connector.policy.NoneConnectorClientConfigOverridePolicy",
            "None",
            frozenset(),
        ),
        ("PrincipalConnectorClientConfigOverridePolicy", "Principal", None),
    ],
)
def test_override_policies(text: str, name: str, allowed: frozenset[str] | None) -> None:
    policy = WorkerConfig.parse(
        LEAST
        | {
            "connector.client.config.override.policy": text,
            "connector.client.config.override.allowlist": "acks, linger.ms",
        }
    ).override_policy
    assert policy.name == name
    assert allowed is None or policy.allowed == allowed
    assert (policy.problem("acks") is None) == (name in ("All", "Allowlist"))


def test_connectors_may_say_when_they_are_restarted() -> None:
    worker = parsed(errors__restart__max__attempts="3").restart
    own = worker.for_connector({"errors.restart.backoff.ms": "5", "name": "x"})
    assert (own.enabled, own.max_attempts, own.backoff_ms) == (True, 3, 5)
    assert own.backoff_max_ms == worker.backoff_max_ms
    assert not worker.for_connector({"errors.restart.enabled": "false"}).enabled
    with pytest.raises(ConfigError, match=r"errors\.restart\.backoff\.ms"):
        worker.for_connector({"errors.restart.backoff.ms": "0"})
