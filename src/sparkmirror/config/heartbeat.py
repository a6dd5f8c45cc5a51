"""The heartbeat connector's settings: a connector config comes in, typed settings go out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from sparkmirror.config import timers
from sparkmirror.config.definitions import HEARTBEAT_KEYS, SOURCE_CONNECTOR_KEYS
from sparkmirror.config.keys import check, parse, require
from sparkmirror.config.validation import java_class_problems
from sparkmirror.policy.naming import ReplicationPolicy, load_policy

_KEYS = (*HEARTBEAT_KEYS, *SOURCE_CONNECTOR_KEYS)
_FACTOR = "heartbeats.topic.replication.factor"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatConfig:
    """Settings of one heartbeat connector; there is no `enabled`, since heartbeats are sent regardless of it."""

    name: str
    source_alias: str
    target_alias: str
    emit_heartbeats_enabled: bool
    emit_heartbeats_interval_seconds: int
    heartbeats_replication_factor: int
    heartbeats_replication_factor_explicit: bool
    admin_timeout_ms: int
    policy: ReplicationPolicy
    warnings: tuple[str, ...]

    @classmethod
    def parse(cls, props: Mapping[str, str]) -> Self:
        """Settings from a connector or task config; one ConfigError that names everything wrong in it."""
        problems = [*check(_KEYS, props), *java_class_problems(props)]
        require(problems, f"Connector {props.get('name', '?')}")
        values = parse(_KEYS, props)
        return cls(
            name=values.text("name"),
            source_alias=values.text("source.cluster.alias"),
            target_alias=values.text("target.cluster.alias"),
            emit_heartbeats_enabled=timers.is_on(values, "emit.heartbeats"),
            emit_heartbeats_interval_seconds=timers.interval(values, "emit.heartbeats"),
            heartbeats_replication_factor=values.integer(_FACTOR),
            heartbeats_replication_factor_explicit=_FACTOR in values.given,
            admin_timeout_ms=values.integer("admin.timeout.ms"),
            policy=load_policy(values.text("replication.policy.class"), props),
            warnings=values.warnings,
        )

    @property
    def heartbeats_topic(self) -> str:
        """Name of the topic on the target that heartbeats are written to."""
        return self.policy.heartbeats_topic()
