"""The keys of ours for properties, ACLs and deletion of topics."""

from __future__ import annotations

import pytest

from sparkmirror.config.connect_validation import require_valid, validate
from sparkmirror.config.keys_mirror import TOPIC_SYNC_KEYS
from sparkmirror.config.source import SourceConfig
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.errors import BadRequest, ConfigError

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
MINIMAL = {
    "name": "c",
    "connector.class": "MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a:1",
    "target.cluster.bootstrap.servers": "b:1",
}
WORKER = WorkerConfig.parse(
    {
        "bootstrap.servers": "b:1",
        "group.id": "g",
        "key.converter": BYTES,
        "value.converter": BYTES,
        "config.storage.topic": "c",
        "offset.storage.topic": "o",
        "status.storage.topic": "s",
    }
)


def test_all_that_removes_or_copies_more_than_mirrormaker_is_off() -> None:
    config = SourceConfig.parse(MINIMAL)
    assert not any(
        (
            config.sync_topic_configs_dry_run,
            config.sync_topic_acls_dry_run,
            config.sync_topic_acls_delete,
            config.sync_topic_acls_prefixed,
            config.sync_group_acls,
            config.sync_topic_deletes,
        )
    )
    assert config.sync_topic_deletes_grace_ms == 3_600_000


def test_every_key_counts() -> None:
    given = {key.name: "true" for key in TOPIC_SYNC_KEYS if key.type == "BOOLEAN"}
    config = SourceConfig.parse({**MINIMAL, **given, "sync.topic.deletes.grace.ms": "5"})
    assert all(
        (
            config.sync_topic_configs_dry_run,
            config.sync_topic_acls_dry_run,
            config.sync_topic_acls_delete,
            config.sync_topic_acls_prefixed,
            config.sync_group_acls,
            config.sync_topic_deletes,
        )
    )
    assert config.sync_topic_deletes_grace_ms == 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sync.topic.deletes.enabled", "maybe"),
        ("sync.topic.deletes.grace.ms", "-1"),
        ("sync.topic.deletes.grace.ms", "1h"),
        ("sync.topic.acls.dry.run", "yes"),
    ],
)
def test_a_wrong_value_is_found_by_validation_and_told_once(key: str, value: str) -> None:
    props = {**MINIMAL, key: value}
    with pytest.raises(BadRequest, match=r"following 1 error\(s\)") as refused:
        require_valid(props, WORKER)
    assert key in str(refused.value)
    with pytest.raises(ConfigError, match=key) as found:
        SourceConfig.parse(props)
    assert "settings are wrong" not in str(found.value)


def test_connects_validation_lists_mirrormakers_keys_only() -> None:
    ours = {key.name for key in TOPIC_SYNC_KEYS}
    answer = validate({**MINIMAL, "sync.topic.deletes.enabled": "true"}, WORKER)
    assert answer["error_count"] == 0
    assert not ours & {entry["definition"]["name"] for entry in answer["configs"]}
