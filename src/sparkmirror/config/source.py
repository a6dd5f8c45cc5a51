"""The source connector's settings: a connector config comes in, typed settings go out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from sparkmirror.config.clients import client_id, client_properties
from sparkmirror.config.definitions import SOURCE_CONNECTOR_KEYS, SOURCE_KEYS
from sparkmirror.config.keys import Problem, Values, check, parse, require
from sparkmirror.config.keys_mirror import (
    AT_LEAST_ONCE,
    DELIVERY_KEY,
    TARGET_PARTITIONS_KEY,
    TOPIC_SYNC_KEYS,
)
from sparkmirror.config.query import QUERY_KEYS, DeadLetterConfig, QueryConfig, query_problems
from sparkmirror.config.rate_limits import (
    RATE_LIMIT_KEYS,
    RateLimitConfig,
    rate_limit_problems,
)
from sparkmirror.config.target_partitions import TargetPartitions
from sparkmirror.config.validation import isolation_level, java_class_problems, source_problems
from sparkmirror.config.validators import OneOf, invalid
from sparkmirror.policy.filters import ConfigPropertyFilter, TopicFilter
from sparkmirror.policy.naming import ReplicationPolicy, load_policy

__all__ = ["SourceConfig", "client_id", "client_properties"]

AT_LEAST_ONCE_NOTE = (
    "Delivery is at least once (mirror.delivery): after a failure some records may be repeated."
)
AT_LEAST_ONCE_REMEDY = (
    "Set mirror.delivery=at-least-once for this flow: after a failure some records may be repeated then, as with MirrorMaker 2, "
    "and none is lost."
)
_KEYS = (*SOURCE_KEYS, *SOURCE_CONNECTOR_KEYS)
_TIMERS = ("refresh.topics", "sync.topic.configs", "sync.topic.acls")
_TIMER_KEYS = tuple(key for key in SOURCE_KEYS if key.name.startswith(_TIMERS))
_OUR_KEYS = (
    *TOPIC_SYNC_KEYS,
    TARGET_PARTITIONS_KEY,
    *QUERY_KEYS,
    *RATE_LIMIT_KEYS,
    DELIVERY_KEY,
)
_ISOLATION_LEVELS = OneOf(("read_committed", "read_uncommitted"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceConfig:
    """Settings of one source connector.

    Intervals are in seconds and positive where their `*_enabled` twin is true. The `*_explicit`
    flags tell whether the user chose a replication factor, so that a default that the target cannot
    satisfy may be lowered but a wish may not.
    """

    name: str
    enabled: bool
    source_alias: str
    target_alias: str
    tasks_max: int
    topics: tuple[str, ...]
    topics_exclude: tuple[str, ...]
    config_properties_exclude: tuple[str, ...]
    refresh_topics_enabled: bool
    refresh_topics_interval_seconds: int
    sync_topic_configs_enabled: bool
    sync_topic_configs_interval_seconds: int
    sync_topic_acls_enabled: bool
    sync_topic_acls_interval_seconds: int
    sync_topic_configs_dry_run: bool
    sync_topic_acls_dry_run: bool
    sync_topic_acls_delete: bool
    sync_topic_acls_prefixed: bool
    sync_group_acls: bool
    sync_topic_deletes: bool
    sync_topic_deletes_grace_ms: int
    replication_factor: int
    replication_factor_explicit: bool
    target_partitions: TargetPartitions
    rate_limits: RateLimitConfig
    exactly_once: bool
    query: QueryConfig | None
    dead_letters: DeadLetterConfig
    errors_tolerated: bool
    errors_logged: bool
    errors_logged_in_full: bool
    offset_syncs_replication_factor: int
    offset_syncs_replication_factor_explicit: bool
    offset_syncs_location: Literal["source", "target"]
    offset_lag_max: int
    emit_offset_syncs: bool
    heartbeats_replication: bool
    use_defaults_from: str
    admin_timeout_ms: int
    consumer_poll_timeout_ms: int
    isolation_level: str
    policy_class: str
    policy: ReplicationPolicy
    transforms: tuple[str, ...]
    warnings: tuple[str, ...]

    @classmethod
    def parse(cls, props: Mapping[str, str]) -> Self:
        """Settings from a connector config; one ConfigError that names everything wrong in it."""
        found = dict.fromkeys([*check(_KEYS, props), *source_config_problems(props)])
        require(list(found), f"Connector {props.get('name', '?')}")
        values = parse(_KEYS, props)
        policy_class = values.text("replication.policy.class")
        config = cls(
            name=values.text("name"),
            enabled=values.boolean("enabled"),
            source_alias=values.text("source.cluster.alias"),
            target_alias=values.text("target.cluster.alias"),
            tasks_max=values.integer("tasks.max"),
            topics=values.items_of("topics"),
            topics_exclude=values.items_of("topics.exclude"),
            config_properties_exclude=values.items_of("config.properties.exclude"),
            refresh_topics_enabled=_runs(values, "refresh.topics"),
            refresh_topics_interval_seconds=_interval(values, "refresh.topics"),
            sync_topic_configs_enabled=_runs(values, "sync.topic.configs"),
            sync_topic_configs_interval_seconds=_interval(values, "sync.topic.configs"),
            sync_topic_acls_enabled=_runs(values, "sync.topic.acls"),
            sync_topic_acls_interval_seconds=_interval(values, "sync.topic.acls"),
            sync_topic_configs_dry_run=values.boolean("sync.topic.configs.dry.run"),
            sync_topic_acls_dry_run=values.boolean("sync.topic.acls.dry.run"),
            sync_topic_acls_delete=values.boolean("sync.topic.acls.delete.enabled"),
            sync_topic_acls_prefixed=values.boolean("sync.topic.acls.prefixed.enabled"),
            sync_group_acls=values.boolean("sync.group.acls.enabled"),
            sync_topic_deletes=values.boolean("sync.topic.deletes.enabled"),
            sync_topic_deletes_grace_ms=values.integer("sync.topic.deletes.grace.ms"),
            replication_factor=values.integer("replication.factor"),
            replication_factor_explicit="replication.factor" in values.given,
            target_partitions=TargetPartitions.parse(values.items_of("target.partitions")),
            rate_limits=RateLimitConfig.parse(props),
            exactly_once=values.text(DELIVERY_KEY.name) != AT_LEAST_ONCE,
            query=QueryConfig.parse(props),
            dead_letters=DeadLetterConfig.parse(props),
            errors_tolerated=values.text("errors.tolerance") == "all",
            errors_logged=values.boolean("errors.log.enable"),
            errors_logged_in_full=values.boolean("errors.log.include.messages"),
            offset_syncs_replication_factor=values.integer("offset-syncs.topic.replication.factor"),
            offset_syncs_replication_factor_explicit=(
                "offset-syncs.topic.replication.factor" in values.given
            ),
            offset_syncs_location=(
                "target" if values.text("offset-syncs.topic.location") == "target" else "source"
            ),
            offset_lag_max=values.integer("offset.lag.max"),
            emit_offset_syncs=values.boolean("emit.offset-syncs.enabled"),
            heartbeats_replication=values.boolean("heartbeats.replication.enabled"),
            use_defaults_from=values.text("use.defaults.from"),
            admin_timeout_ms=values.integer("admin.timeout.ms"),
            consumer_poll_timeout_ms=values.integer("consumer.poll.timeout.ms"),
            isolation_level=isolation_level(props),
            policy_class=policy_class,
            policy=load_policy(policy_class, props),
            transforms=values.items_of("transforms"),
            warnings=values.warnings,
        )
        # A wrong pattern is a wrong setting: better found here than at the first refresh.
        config.topic_filter()
        config.config_property_filter()
        return config

    @property
    def offset_syncs_topic(self) -> str:
        """Name of the offset-syncs topic: it carries the alias of the cluster it is not on."""
        other = self.target_alias if self.offset_syncs_location == "source" else self.source_alias
        return self.policy.offset_syncs_topic(other)

    @property
    def checkpoints_topic(self) -> str:
        """Name of this flow's checkpoints topic, which is no copy although it looks like one."""
        return self.policy.checkpoints_topic(self.source_alias)

    def wanted_partitions(self, topic: str) -> int | None:
        """How many partitions a topic's copy is to have; None: as many as the topic. Heartbeats keep to the one they have."""
        if self.policy.is_heartbeats_topic(topic):
            return None
        return self.target_partitions.count(topic)

    def topic_filter(self) -> TopicFilter:
        """Which topics the user wants."""
        return TopicFilter(self.topics, self.topics_exclude)

    def config_property_filter(self) -> ConfigPropertyFilter:
        """Which topic properties the user wants copied."""
        return ConfigPropertyFilter(self.config_properties_exclude)


def source_config_problems(props: Mapping[str, str]) -> list[Problem]:
    """What the key table cannot say: rules between keys, and what this program cannot do."""
    problems = [
        *source_problems(props),
        *java_class_problems(props),
        # Validation lists MirrorMaker 2's keys only, but ours count too.
        *check(_OUR_KEYS, props),
        *query_problems(props),
        *rate_limit_problems(props),
        *_delivery_problems(props),
    ]
    level = _ISOLATION_LEVELS("isolation.level of the source consumer", isolation_level(props))
    if level is not None:
        problems.append(Problem("source.consumer.isolation.level", level))
    if not check(_TIMER_KEYS, props):
        values = parse(_TIMER_KEYS, props)
        names = [f"{timer}.interval.seconds" for timer in _TIMERS if _stands_still(values, timer)]
        problems += [Problem(n, invalid(n, 0, "Value must be at least 1")) for n in names]
    return problems


def _delivery_problems(props: Mapping[str, str]) -> list[Problem]:
    wanted = props.get("exactly.once.support")
    if wanted != "required" or props.get(DELIVERY_KEY.name) != AT_LEAST_ONCE:
        return []
    text = f"exactly.once.support is required, but {DELIVERY_KEY.name} is {AT_LEAST_ONCE}: remove one of them."
    return [Problem(DELIVERY_KEY.name, text)]


def _stands_still(values: Values, timer: str) -> bool:
    return values.boolean(f"{timer}.enabled") and _interval(values, timer) == 0


def _runs(values: Values, timer: str) -> bool:
    # A negative interval switches a timer off, as in MirrorMaker 2.
    return values.boolean(f"{timer}.enabled") and _interval(values, timer) > 0


def _interval(values: Values, timer: str) -> int:
    return values.integer(f"{timer}.interval.seconds")
