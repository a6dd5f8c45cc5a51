"""The checkpoint connector's settings: a connector or task config comes in, typed settings go out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from sparkmirror.config import timers
from sparkmirror.config.definitions import CHECKPOINT_KEYS, SOURCE_CONNECTOR_KEYS
from sparkmirror.config.keys import Problem, Values, check, parse, require, split_list
from sparkmirror.config.target_partitions import TargetPartitions
from sparkmirror.config.validation import checkpoint_problems, java_class_problems
from sparkmirror.errors import ConfigError
from sparkmirror.policy.filters import GroupFilter, TopicFilter
from sparkmirror.policy.naming import ReplicationPolicy, load_policy

TASK_GROUPS = "task.assigned.groups"
TASK_INDEX = "task.index"
_KEYS = (*CHECKPOINT_KEYS, *SOURCE_CONNECTOR_KEYS)
_REFRESH, _EMIT, _SYNC = "refresh.groups", "emit.checkpoints", "sync.group.offsets"
_REFRESH_KEYS = tuple(key for key in CHECKPOINT_KEYS if key.name.startswith(_REFRESH))
_FACTOR = "checkpoints.topic.replication.factor"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    """Settings of one checkpoint connector.

    Intervals are in seconds; `refresh_groups_*` and `sync_group_offsets_*` are positive where their `*_enabled` twin is true.
    """

    name: str
    enabled: bool
    source_alias: str
    target_alias: str
    tasks_max: int
    groups: tuple[str, ...]
    groups_exclude: tuple[str, ...]
    topics: tuple[str, ...]
    topics_exclude: tuple[str, ...]
    refresh_groups_enabled: bool
    refresh_groups_interval_seconds: int
    emit_checkpoints_enabled: bool
    emit_checkpoints_interval_seconds: int
    sync_group_offsets_enabled: bool
    sync_group_offsets_interval_seconds: int
    checkpoints_replication_factor: int
    checkpoints_replication_factor_explicit: bool
    offset_syncs_location: Literal["source", "target"]
    admin_timeout_ms: int
    policy: ReplicationPolicy
    target_partitions: TargetPartitions
    warnings: tuple[str, ...]

    @classmethod
    def parse(cls, props: Mapping[str, str]) -> Self:
        """Settings from a connector or task config; one ConfigError that names everything wrong in it."""
        require([*check(_KEYS, props), *_problems(props)], f"Connector {props.get('name', '?')}")
        values = parse(_KEYS, props)
        config = cls(
            name=values.text("name"),
            enabled=values.boolean("enabled"),
            source_alias=values.text("source.cluster.alias"),
            target_alias=values.text("target.cluster.alias"),
            tasks_max=values.integer("tasks.max"),
            groups=values.items_of("groups"),
            groups_exclude=values.items_of("groups.exclude"),
            topics=values.items_of("topics"),
            topics_exclude=values.items_of("topics.exclude"),
            refresh_groups_enabled=timers.is_on(values, _REFRESH),
            refresh_groups_interval_seconds=timers.interval(values, _REFRESH),
            emit_checkpoints_enabled=timers.is_on(values, _EMIT),
            emit_checkpoints_interval_seconds=timers.interval(values, _EMIT),
            sync_group_offsets_enabled=(
                timers.is_on(values, _SYNC) and timers.interval(values, _SYNC) > 0
            ),
            sync_group_offsets_interval_seconds=timers.interval(values, _SYNC),
            checkpoints_replication_factor=values.integer(_FACTOR),
            checkpoints_replication_factor_explicit=_FACTOR in values.given,
            offset_syncs_location=(
                "target" if values.text("offset-syncs.topic.location") == "target" else "source"
            ),
            admin_timeout_ms=values.integer("admin.timeout.ms"),
            policy=load_policy(values.text("replication.policy.class"), props),
            target_partitions=TargetPartitions.parse(values.items_of("target.partitions")),
            warnings=(*values.warnings, *_notes(values)),
        )
        # A wrong pattern is a wrong setting: better found here than at the first refresh.
        config.topic_filter()
        config.group_filter()
        return config

    @property
    def offset_syncs_topic(self) -> str:
        """Name of the offset-syncs topic: it carries the alias of the cluster it is not on."""
        other = self.target_alias if self.offset_syncs_location == "source" else self.source_alias
        return self.policy.offset_syncs_topic(other)

    @property
    def checkpoints_topic(self) -> str:
        """Name of this flow's checkpoints topic on the target."""
        return self.policy.checkpoints_topic(self.source_alias)

    def may_be_placed(self, topic: str) -> bool:
        """Whether a topic's copy may have another number of partitions, on which records are placed by their keys."""
        if self.policy.is_heartbeats_topic(topic):
            return False
        return self.target_partitions.count(topic) is not None

    def topic_filter(self) -> TopicFilter:
        """Which topics' offsets are followed."""
        return TopicFilter(self.topics, self.topics_exclude)

    def group_filter(self) -> GroupFilter:
        """Which groups are followed."""
        return GroupFilter(self.groups, self.groups_exclude)


@dataclass(frozen=True, slots=True)
class CheckpointTaskConfig:
    """Settings of one checkpoint task: the connector's, and which groups are its own."""

    connector: CheckpointConfig
    groups: tuple[str, ...]
    index: str
    """The task's number; "?" if it was not told."""

    @classmethod
    def parse(cls, props: Mapping[str, str]) -> Self:
        """Settings from a task config."""
        config = CheckpointConfig.parse(props)
        groups = tuple(dict.fromkeys(split_list(props.get(TASK_GROUPS, ""))))
        if not groups:
            raise ConfigError(
                f"Connector {config.name}: a task has no {TASK_GROUPS}.",
                "Restart the connector, so that it makes its task configs anew.",
            )
        return cls(config, groups, props.get(TASK_INDEX, "?"))


def task_config(props: Mapping[str, str], groups: tuple[str, ...], index: int) -> dict[str, str]:
    """A connector's config as that of its task for these groups."""
    return {**props, TASK_GROUPS: ",".join(groups), TASK_INDEX: str(index)}


def _problems(props: Mapping[str, str]) -> list[Problem]:
    problems = [*checkpoint_problems(props), *java_class_problems(props)]
    if not check(_REFRESH_KEYS, props):
        problem = timers.zero_problem(parse(_REFRESH_KEYS, props), _REFRESH)
        problems += [] if problem is None else [problem]
    return problems


def _notes(values: Values) -> list[str]:
    # MirrorMaker 2 takes this and then never moves a group: taken here too, but not in silence.
    if timers.is_on(values, _SYNC) and timers.interval(values, _SYNC) == 0:
        return [f"{_SYNC}.interval.seconds is 0, so no group is moved; set it to 1 or more."]
    return []
