"""Connector configs as a worker validates them. What Connect itself says is compared in tests/peer."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.connect_validation import require_plugin, require_valid, resolved, validate
from sparkmirror.config.plugins import CONNECTORS
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.errors import BadRequest, ConnectError

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
JSON = "org.apache.kafka.connect.json.JsonConverter"
FILES = "org.apache.kafka.common.config.provider.FileConfigProvider"
TRANSFORMS = "org.apache.kafka.connect.transforms"
LEAST = {"name": "m", "connector.class": "MirrorSourceConnector", "source.cluster.alias": "A"}


def worker(**changes: str) -> WorkerConfig:
    least = {
        "bootstrap.servers": "broker:9092",
        "group.id": "g",
        "key.converter": BYTES,
        "value.converter": BYTES,
        "config.storage.topic": "configs",
        "offset.storage.topic": "offsets",
        "status.storage.topic": "status",
    }
    return WorkerConfig.parse(least | {k.replace("__", "."): v for k, v in changes.items()})


WORKER = worker()


def errors(answer: dict[str, Any]) -> dict[str, list[str]]:
    found = {e["value"]["name"]: e["value"]["errors"] for e in answer["configs"]}
    return {name: messages for name, messages in found.items() if messages}


def wrong(config: WorkerConfig = WORKER, **changes: str | None) -> dict[str, list[str]]:
    """The errors of the least config with changes; two underscores stand for a dot."""
    return errors(validate(LEAST | {k.replace("__", "."): v for k, v in changes.items()}, config))


@pytest.mark.parametrize(("plugin", "keys"), [*zip(CONNECTORS, (113, 102, 118), strict=True)])
def test_the_answer_lists_every_key_once(plugin: Any, keys: int) -> None:
    answer = validate(LEAST | {"connector.class": plugin.simple_name}, WORKER)
    names = [entry["definition"]["name"] for entry in answer["configs"]]
    assert (len(names), len(set(names)), answer["error_count"]) == (keys, keys, 0)
    assert answer["name"] == plugin.simple_name
    assert answer["groups"] == [
        "Common",
        "Transforms",
        "Predicates",
        "Error Handling",
        "Topic Creation",
        "Exactly Once Support",
        "offsets.topic",
    ]
    assert json.loads(json.dumps(answer)) == answer


def test_a_good_config_passes() -> None:
    require_valid(LEAST, WORKER)


def test_a_bad_one_is_refused_in_connects_words() -> None:
    with pytest.raises(BadRequest) as refused:
        require_valid({"connector.class": "MirrorSource", "name": "x", "tasks.max": "0"}, WORKER)
    assert str(refused.value).split("\n") == [
        "Connector configuration is invalid and contains the following 2 error(s):",
        "Invalid value 0 for configuration tasks.max: Value must be at least 1",
        'Missing required configuration "source.cluster.alias" which has no default value.',
        "You can also find the above list of errors at the endpoint "
        "`/connector-plugins/{connectorType}/config/validate`",
    ]


def test_a_config_without_a_connector_is_a_bad_request_but_an_error_of_validation() -> None:
    for config in ({"name": "x"}, {"connector.class": "com.acme.X"}):
        with pytest.raises(BadRequest):
            require_valid(config, WORKER)
        with pytest.raises(ConnectError) as raised:
            validate(config, WORKER)
        assert raised.value.status == 500


def test_secrets_are_hidden_everywhere() -> None:
    secret = "-".join(("s3cret", "value"))
    config = LEAST | {
        "ssl.key.password": secret,
        "sasl.jaas.config": secret,
        "producer.override.sasl.jaas.config": secret,
        "source.cluster.ssl.truststore.password": secret,
    }
    assert secret not in json.dumps(validate(config, WORKER))
    with pytest.raises(BadRequest) as refused:
        require_valid({"source.cluster.ssl.key.password": secret}, WORKER)
    assert secret not in str(refused.value)


def test_the_address_must_fit_the_class() -> None:
    for plugin in ("MirrorSourceConnector", "MirrorSource", "Source"):
        require_plugin(plugin, LEAST)
    require_plugin("anything", {})
    with pytest.raises(BadRequest, match="does not match request type MirrorHeartbeat"):
        require_plugin("MirrorHeartbeat", LEAST)


# Converters


def test_bytes_are_copied_whatever_the_worker_says_if_the_connector_says_bytes() -> None:
    json_worker = worker(key__converter=JSON, value__converter=JSON)
    assert wrong(json_worker, key__converter=BYTES, value__converter=BYTES) == {}
    assert wrong(json_worker, key__converter="ByteArray", value__converter="ByteArray") == {}


def test_a_converter_of_the_worker_that_does_not_copy_is_refused_on_the_key_to_set() -> None:
    found = wrong(worker(key__converter=JSON, value__converter="io.acme.Avro"))
    assert [*found] == ["key.converter", "value.converter"]
    assert found["key.converter"] == [
        f"key.converter is {JSON} (the worker's setting), which would write keys in another form "
        f"than the source has them. Set key.converter to {BYTES} in the connector's config."
    ]
    assert "io.acme.Avro" in found["value.converter"][0]


def test_the_default_header_converter_counts_as_bytes_others_do_not() -> None:
    simple = "org.apache.kafka.connect.storage.SimpleHeaderConverter"
    assert wrong(header__converter=simple) == wrong(header__converter=BYTES) == {}
    assert wrong(worker(header__converter=simple)) == {}
    assert [*wrong(header__converter=JSON)] == ["header.converter"]
    assert [*wrong(worker(header__converter=JSON))] == ["header.converter"]


@pytest.mark.parametrize("connector", ["MirrorCheckpointConnector", "MirrorHeartbeatConnector"])
def test_the_other_connectors_write_bytes_too(connector: str) -> None:
    assert [*wrong(connector__class=connector, value__converter=JSON)] == ["value.converter"]


# Steps


@pytest.mark.parametrize(
    "name",
    ["Cast$Value", "ExtractField$Key", "HeaderFrom$Value", "MaskField$Value", "ValueToKey"],
)
def test_steps_that_need_fields_are_refused_by_name(name: str) -> None:
    found = wrong(transforms="a", transforms__a__type=f"{TRANSFORMS}.{name}")
    ((key, (message,)),) = found.items()
    assert key == "transforms.a.type"
    assert "needs records with fields" in message
    assert "RegexRouter" in message


def test_unknown_steps_are_refused() -> None:
    found = wrong(transforms="a", transforms__a__type="com.acme.T")
    assert found == {
        "transforms.a.type": [
            "Invalid value com.acme.T for configuration transforms.a.type: "
            "Class com.acme.T could not be found."
        ]
    }


def test_a_predicate_must_exist() -> None:
    step = {"transforms": "f", "transforms.f.type": "Filter", "transforms.f.predicate": "p"}
    predicate = {"predicates": "p", "predicates.p.type": "RecordIsTombstone"}
    assert [*errors(validate(LEAST | step, WORKER))] == ["transforms.f.predicate"]
    assert errors(validate(LEAST | step | predicate, WORKER)) == {}


def test_an_expression_that_python_cannot_take_is_refused() -> None:
    found = wrong(
        transforms="r",
        transforms__r__type="RegexRouter",
        transforms__r__regex=r"\p{L}",
        transforms__r__replacement="x",
    )
    assert [*found] == ["transforms.r.regex"]


# Rules between keys


def test_exactly_once_may_be_required_where_the_worker_has_it() -> None:
    able = worker(exactly__once__source__support="enabled")
    assert wrong(able, exactly__once__support="required") == {}
    assert wrong(exactly__once__support="required") == {
        "exactly.once.support": ["This worker does not have exactly-once source support enabled."]
    }
    dirty = wrong(
        able, exactly__once__support="required", consumer__isolation__level="read_uncommitted"
    )
    assert [*dirty] == ["exactly.once.support"]
    others = wrong(
        able, exactly__once__support="required", connector__class="MirrorHeartbeatConnector"
    )
    assert [*others] == ["exactly.once.support"]


def test_a_standalone_worker_does_not_ask_about_delivery() -> None:
    alone = WorkerConfig.parse(
        {
            "bootstrap.servers": "b:1",
            "key.converter": BYTES,
            "value.converter": BYTES,
            "offset.storage.file.filename": "/x",
        },
        standalone=True,
    )
    assert wrong(alone, exactly__once__support="required", transaction__boundary="connector") == {}


@pytest.mark.parametrize(
    ("connector", "key", "value"),
    [
        ("MirrorSourceConnector", "topics", "*"),
        ("MirrorSourceConnector", "topics.exclude", r"\p{L}"),
        ("MirrorSourceConnector", "config.properties.exclude", "("),
        ("MirrorCheckpointConnector", "groups", "["),
        ("MirrorCheckpointConnector", "groups.exclude", "["),
        ("MirrorCheckpointConnector", "topics", "["),
        ("MirrorCheckpointConnector", "topics.exclude", "["),
        ("MirrorSourceConnector", "refresh.topics.interval.seconds", "0"),
        ("MirrorCheckpointConnector", "refresh.groups.interval.seconds", "0"),
        ("MirrorSourceConnector", "source.consumer.isolation.level", "dirty"),
        ("MirrorSourceConnector", "replication.policy.class", "com.acme.Policy"),
        ("MirrorHeartbeatConnector", "forwarding.admin.class", "com.acme.Admin"),
        ("MirrorHeartbeatConnector", "errors.restart.backoff.ms", "0"),
        ("MirrorSourceConnector", "errors.restart.enabled", "maybe"),
    ],
)
def test_what_a_start_would_refuse_is_refused_before(connector: str, key: str, value: str) -> None:
    answer = validate(LEAST | {"connector.class": connector, key: value}, WORKER)
    assert [*errors(answer)] == [key]
    assert answer["error_count"] == 1


def test_a_connector_that_is_not_there_in_that_version_shows_the_frameworks_keys_only() -> None:
    answer = validate(LEAST | {"connector.plugin.version": "3.9.1"}, WORKER)
    assert len(answer["configs"]) == 19
    assert [*errors(answer)] == ["connector.class", "connector.plugin.version"]
    with pytest.raises(BadRequest, match="Unbounded range"):
        require_valid(LEAST | {"connector.plugin.version": "["}, WORKER)


# Overrides


def test_overrides_are_subject_to_the_policy() -> None:
    strict = worker(connector__client__config__override__policy="None")
    overrides = {"producer.override.acks": "1", "producer.override.linger.ms": "2"}
    answer = validate(LEAST | overrides, strict)
    assert answer["error_count"] == 2
    assert {*errors(answer)} == {*overrides}
    assert errors(validate(LEAST | overrides, WORKER)) == {}


def test_a_wrong_override_is_an_error_of_its_key() -> None:
    found = wrong(producer__override__linger__ms="soon")
    assert [*found] == ["producer.override.linger.ms"]


def test_consumers_and_admins_are_looked_at_where_there_are_any() -> None:
    def listed(config: WorkerConfig, extra: dict[str, str]) -> set[str]:
        overrides = {"consumer.override.x": "1", "admin.override.y": "1"}
        answer = validate(LEAST | overrides | extra, config)
        return {e["value"]["name"] for e in answer["configs"]} & {*overrides}

    assert listed(WORKER, {}) == set()
    assert listed(WORKER, {"topic.creation.default.partitions": "1"}) == {"admin.override.y"}
    both = {"consumer.override.x", "admin.override.y"}
    assert listed(WORKER, {"offsets.storage.topic": "t"}) == both
    assert listed(worker(exactly__once__source__support="enabled"), {}) == both


# References


def test_references_are_resolved_with_the_providers_of_the_worker_only(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("tasks=3\n")
    reference = f"${{file:{secrets}:tasks}}"
    able = worker(config__providers="file", config__providers__file__class=FILES)
    assert wrong(able, tasks__max=reference) == {}
    assert resolved({"tasks.max": reference}, able)[0] == {"tasks.max": "3"}
    assert resolved({"tasks.max": reference}, WORKER) == ({"tasks.max": reference}, [])
    assert [*wrong(tasks__max=reference)] == ["tasks.max"], "nobody reads the worker's files"


def test_answers_hold_references_and_not_what_they_stand_for(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("key=not-to-be-shown\n")
    reference = f"${{file:{secrets}:key}}"
    able = worker(config__providers="file", config__providers__file__class=FILES)
    config = {
        **{"name": "m", "connector.class": "MirrorSourceConnector"},
        **dict.fromkeys(("tasks.max", "topics", "ssl.key.password", "my.secret"), reference),
        "producer.override.linger.ms": reference,
        "producer.override.my.password": "written-in-clear",
    }
    answer = validate(config, able)
    shown = json.dumps(answer)
    assert "not-to-be-shown" not in shown
    assert "written-in-clear" not in shown
    values = {entry["value"]["name"]: entry["value"] for entry in answer["configs"]}
    assert values["topics"]["value"] == reference
    assert values["ssl.key.password"]["value"] == "[hidden]"
    assert values["producer.override.my.password"]["value"] == "[hidden]"
    said = values["tasks.max"]["errors"][0]
    assert said.startswith(f"Invalid value {reference} for configuration tasks.max: Not a number")
    with pytest.raises(ConnectError, match=re.escape(reference)) as caught:
        validate({"topics": reference, "ssl.key.password": "written-in-clear"}, able)
    assert "not-to-be-shown" not in str(caught.value)
    assert "written-in-clear" not in str(caught.value)


def test_a_reference_without_an_answer_is_an_error_of_its_key() -> None:
    able = worker(config__providers="file", config__providers__file__class=FILES)
    found = wrong(able, topics="${file:/no/such/file:x}", foo="${file:/no/such/file:x}")
    assert [*found] == ["foo", "topics"]
    assert "/no/such/file" in found["topics"][0]


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "name",
                "tasks.max",
                "topics",
                "transforms",
                "transforms.a.type",
                "transforms.a.predicate",
                "predicates",
                "key.converter",
                "connector.plugin.version",
                "exactly.once.support",
                "replication.policy.separator",
                "producer.override.linger.ms",
                "topic.creation.groups",
                "x",
            ]
        ),
        st.none() | st.text(max_size=12) | st.sampled_from(["a", "a,b", "Filter", "1", "["]),
    )
)
def test_any_config_gets_an_answer_with_the_errors_counted(props: dict[str, str | None]) -> None:
    try:
        answer = validate(LEAST | props, WORKER)
    except ConnectError:
        assert "connector.plugin.version" in props
        return
    assert answer["error_count"] == sum(len(messages) for messages in errors(answer).values()) or (
        any(name.startswith("producer.override.") for name in props)
    )
    if answer["error_count"]:
        with pytest.raises(BadRequest):
            require_valid(LEAST | props, WORKER)


# What people have


IAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "AWS_MSK_IAM",
    "sasl.jaas.config": "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}


@pytest.mark.parametrize("kind", ["Source", "Checkpoint", "Heartbeat"])
def test_connectors_of_a_migration_in_a_cloud(kind: str) -> None:
    both = {f"{side}.cluster.{k}": v for side in ("source", "target") for k, v in IAM.items()}
    config = both | {
        "name": "mm2",
        "connector.class": f"org.apache.kafka.connect.mirror.Mirror{kind}Connector",
        "clusters": "msksource,mskdest",
        "source.cluster.alias": "msksource",
        "target.cluster.alias": "mskdest",
        "source.cluster.bootstrap.servers": "a:9098",
        "target.cluster.bootstrap.servers": "b:9098",
        "replication.policy.class": "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy",
        "tasks.max": "4",
        "key.converter": BYTES,
        "value.converter": BYTES,
        "sync.group.offsets.enabled": "true",
        "consumer.group.id": "mm2-msc",
        "producer.enable.idempotence": "true",
    }
    own = {f"{prefix}{k}": v for prefix in ("", "producer.", "consumer.") for k, v in IAM.items()}
    migrating = worker(**{name.replace(".", "__"): value for name, value in own.items()})
    assert migrating.notes == ()
    require_valid(config, migrating)


def test_the_one_connector_of_a_tutorial() -> None:
    config = {
        "name": "replicator",
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "source",
        "topics": "to_replicate",
        "source.cluster.bootstrap.servers": "broker:9092",
        "target.cluster.bootstrap.servers": "broker2:9092",
        "producer.override.bootstrap.servers": "broker2:9092",
        "offset-syncs.topic.replication.factor": "1",
    }
    require_valid(config, worker(connector__client__config__override__policy="All"))


def test_connectors_that_override_the_json_converters_of_an_old_worker() -> None:
    config = LEAST | {
        "key.converter": BYTES,
        "value.converter": BYTES,
        "topics": "test",
        "sync.topic.acls.enabled": "false",
        "sync.topic.configs.enabled": "false",
        "replication.factor": "1",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "tasks.max": "2",
    }
    old = worker(
        key__converter=JSON,
        value__converter=JSON,
        key__converter__schemas__enable="true",
        internal__key__converter=JSON,
        rest__port="8083",
    )
    require_valid(config, old)
    with pytest.raises(BadRequest, match=r"Set key\.converter to"):
        require_valid(LEAST, old)


def test_names_that_a_rebalance_could_not_carry_are_refused() -> None:
    found = {
        e["value"]["name"]: e["value"]["errors"]
        for e in validate(LEAST | {"name": "n" * 1001}, WORKER)["configs"]
    }
    assert "at most 1000 bytes" in found["name"][0]
    assert len(found["name"][0]) < 200


def test_a_connector_has_a_hundred_steps_at_most() -> None:
    """Each brings keys of its own into the answer."""
    names = ",".join(f"s{number}" for number in range(20_000))
    began = time.monotonic()
    answer = validate(LEAST | {"transforms": names, "predicates": names}, WORKER)
    assert time.monotonic() - began < 10
    assert len(answer["configs"]) < 1000
    found = {e["value"]["name"]: e["value"]["errors"] for e in answer["configs"]}
    assert "There may be at most 100." in found["transforms"][0]
