"""The settings of a Connect worker: worker properties come in, typed settings go out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self

from sparkmirror.config.clients import with_prefix
from sparkmirror.config.keys import Problem, Values, check, parse, require
from sparkmirror.config.keys_worker import DISTRIBUTED_KEYS, RESTART_KEYS, STANDALONE_KEYS
from sparkmirror.config.overrides import OverridePolicy, find_policy
from sparkmirror.config.permits import Permits
from sparkmirror.config.providers import resolve
from sparkmirror.config.rest import RestConfig, rest_problems
from sparkmirror.config.validators import invalid
from sparkmirror.config.worker_notes import modernize, notes

StorageName = Literal["offset", "config", "status"]

HMAC_DIGESTS = {
    "hmacmd5": "md5",
    "hmacsha1": "sha1",
    "hmacsha224": "sha224",
    "hmacsha256": "sha256",
    "hmacsha384": "sha384",
    "hmacsha512": "sha512",
}
"""Java's names of MAC algorithms, in lower case, and what Python calls the digest of each."""

_FIXED_STORAGE = ("topic", "partitions", "replication.factor", "cleanup.policy", "file.filename")
_SIGNED = "sessioned"
_SIGNATURE = "inter.worker.signature.algorithm"
_VERIFICATION = "inter.worker.verification.algorithms"


@dataclass(frozen=True, slots=True)
class StorageTopicConfig:
    """One of the worker's three compacted topics, as it is to be created if it does not exist.

    `replication_factor_explicit` tells whether the user chose the factor: a default that the
    cluster cannot satisfy may be lowered, a wish may not.
    """

    name: str
    partitions: int
    replication_factor: int
    replication_factor_explicit: bool
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RestartConfig:
    """When a connector or task that has failed is started again by itself."""

    enabled: bool
    max_attempts: int
    """How often in a row; -1: without end."""
    backoff_ms: int
    backoff_max_ms: int
    reset_ms: int

    def for_connector(self, props: Mapping[str, str]) -> RestartConfig:
        """The same with what a connector's config says about it; ConfigError if that is wrong."""
        own = {key.name: props[key.name] for key in RESTART_KEYS if key.name in props}
        return _restart(parse(RESTART_KEYS, self._properties() | own))

    def _properties(self) -> dict[str, str]:
        return {
            "errors.restart.enabled": str(self.enabled),
            "errors.restart.max.attempts": str(self.max_attempts),
            "errors.restart.backoff.ms": str(self.backoff_ms),
            "errors.restart.backoff.max.ms": str(self.backoff_max_ms),
            "errors.restart.reset.ms": str(self.reset_ms),
        }


@dataclass(frozen=True, slots=True)
class SigningConfig:
    """How workers sign what they ask of each other; algorithms by their Java names."""

    key_algorithm: str
    key_size: int | None
    key_ttl_ms: int
    signature_algorithm: str
    verification_algorithms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Settings of one worker.

    A standalone worker has no group and keeps nothing in topics: its `group_id` and the names of
    its storage topics are empty, and `offset_file` is where positions are kept.
    """

    standalone: bool
    bootstrap_servers: tuple[str, ...]
    client_id: str
    group_id: str
    config_storage: StorageTopicConfig
    offset_storage: StorageTopicConfig
    status_storage: StorageTopicConfig
    offset_file: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    scheduled_rebalance_max_delay_ms: int
    worker_sync_timeout_ms: int
    worker_unsync_backoff_ms: int
    offset_flush_interval_ms: int
    offset_flush_timeout_ms: int
    task_shutdown_graceful_timeout_ms: int
    connect_protocol: str
    exactly_once: str
    """disabled, preparing or enabled."""
    key_converter: str
    value_converter: str
    header_converter: str
    override_policy: OverridePolicy
    topic_creation: bool
    topic_tracking: bool
    topic_tracking_allow_reset: bool
    signing: SigningConfig
    rest: RestConfig
    restart: RestartConfig
    permits: Permits
    """What configs of connectors may name."""
    spark: Mapping[str, str]
    """The `spark.*` keys: settings of the Spark session."""
    mirror: Mapping[str, str]
    """The `mirror.*` keys: settings of ours that a Java worker does not have."""
    properties: Mapping[str, str]
    """All that the user wrote, references resolved, old keys under their new names."""
    raw: Mapping[str, str]
    """All that the user wrote, as it was written."""
    notes: tuple[str, ...]
    """One line for each key that is old, ignored or unknown."""

    @classmethod
    def parse(
        cls,
        props: Mapping[str, str],
        *,
        standalone: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> Self:
        """Settings from worker properties; one ConfigError that names everything wrong in them.

        `environment` holds the variables that references to `env` see (default: the process's).
        """
        properties = modernize(resolve(props, environment))
        keys = STANDALONE_KEYS if standalone else DISTRIBUTED_KEYS
        require([*check(keys, properties), *_problems(properties)], "Worker config")
        # A standalone worker ignores what only a group needs; those settings get their defaults.
        values = parse(DISTRIBUTED_KEYS, _fill(properties) if standalone else properties)
        return cls(
            standalone=standalone,
            bootstrap_servers=values.items_of("bootstrap.servers"),
            client_id=values.text("client.id"),
            group_id=values.text("group.id"),
            config_storage=_storage("config", values, properties),
            offset_storage=_storage("offset", values, properties),
            status_storage=_storage("status", values, properties),
            offset_file=properties["offset.storage.file.filename"] if standalone else "",
            session_timeout_ms=values.integer("session.timeout.ms"),
            heartbeat_interval_ms=values.integer("heartbeat.interval.ms"),
            rebalance_timeout_ms=values.integer("rebalance.timeout.ms"),
            scheduled_rebalance_max_delay_ms=values.integer("scheduled.rebalance.max.delay.ms"),
            worker_sync_timeout_ms=values.integer("worker.sync.timeout.ms"),
            worker_unsync_backoff_ms=values.integer("worker.unsync.backoff.ms"),
            offset_flush_interval_ms=values.integer("offset.flush.interval.ms"),
            offset_flush_timeout_ms=values.integer("offset.flush.timeout.ms"),
            task_shutdown_graceful_timeout_ms=values.integer("task.shutdown.graceful.timeout.ms"),
            connect_protocol=values.text("connect.protocol").lower(),
            exactly_once=values.text("exactly.once.source.support").lower(),
            key_converter=values.text("key.converter"),
            value_converter=values.text("value.converter"),
            header_converter=values.text("header.converter"),
            override_policy=find_policy(properties),
            topic_creation=values.boolean("topic.creation.enable"),
            topic_tracking=values.boolean("topic.tracking.enable"),
            topic_tracking_allow_reset=values.boolean("topic.tracking.allow.reset"),
            signing=_signing(values),
            rest=RestConfig.build(values, properties),
            restart=_restart(values),
            permits=Permits.parse(properties, environment),
            spark=_starting(properties, "spark."),
            mirror=_starting(properties, "mirror."),
            properties=properties,
            raw=dict(props),
            notes=(*values.warnings, *notes(props, standalone), *_notes(values, standalone)),
        )

    @property
    def bootstrap(self) -> str:
        """The worker's own cluster, as clients take it."""
        return ",".join(self.bootstrap_servers)

    @property
    def exactly_once_enabled(self) -> bool:
        """Whether a connector may insist on exactly-once support."""
        return self.exactly_once == "enabled"

    @property
    def signs(self) -> bool:
        """Whether workers of the group sign what they ask of each other."""
        return self.connect_protocol == _SIGNED


def _problems(properties: Mapping[str, str]) -> list[Problem]:
    """What the key table cannot say."""
    return [
        *rest_problems(properties),
        *_algorithm_problems(properties),
        *_policy_problems(properties),
    ]


def _policy_problems(properties: Mapping[str, str]) -> list[Problem]:
    key = "connector.client.config.override.policy"
    try:
        find_policy(properties)
    except ValueError as error:
        return [Problem(key, invalid(key, properties.get(key), str(error)))]
    return []


def _notes(values: Values, standalone: bool) -> list[str]:
    protocol = values.text("connect.protocol").lower()
    if standalone or protocol == _SIGNED:
        return []
    return [
        f"connect.protocol={protocol}: workers of the group do not sign what they ask of each other. Whoever reaches the port of "
        "this worker can replace the tasks of a connector; with a login (rest.extension.classes) nobody can, not even workers. "
        f"Set connect.protocol={_SIGNED} on every worker."
    ]


def _algorithm_problems(properties: Mapping[str, str]) -> list[Problem]:
    names = ("inter.worker.key.generation.algorithm", _SIGNATURE, _VERIFICATION)
    keys = [key for key in DISTRIBUTED_KEYS if key.name in names]
    if check(keys, properties):
        return []
    values = parse(keys, properties)
    accepted = values.items_of(_VERIFICATION)
    used = {name: (values.text(name),) for name in names[:2]} | {_VERIFICATION: accepted}
    problems = [
        Problem(name, invalid(name, word, f"Use one of {', '.join(HMAC_DIGESTS)}"))
        for name, words in used.items()
        for word in words
        if word.lower() not in HMAC_DIGESTS
    ]
    if values.text(_SIGNATURE) not in accepted:
        expected = f"Signature algorithm must be present in {_VERIFICATION} list"
        problems.append(Problem(_SIGNATURE, invalid(_SIGNATURE, used[_SIGNATURE][0], expected)))
    return problems


def _fill(properties: Mapping[str, str]) -> dict[str, str]:
    common = {key.name for key in STANDALONE_KEYS}
    group = {key.name: key for key in DISTRIBUTED_KEYS if key.name not in common}
    kept = {name: value for name, value in properties.items() if name not in group}
    return kept | {name: "" for name, key in group.items() if key.required}


def _storage(
    storage: StorageName, values: Values, properties: Mapping[str, str]
) -> StorageTopicConfig:
    own = with_prefix(properties, f"{storage}.storage.")
    factor = f"{storage}.storage.replication.factor"
    return StorageTopicConfig(
        name=values.text(f"{storage}.storage.topic"),
        partitions=1 if storage == "config" else values.integer(f"{storage}.storage.partitions"),
        replication_factor=values.integer(factor),
        replication_factor_explicit=factor in values.given,
        configs={name: value for name, value in own.items() if name not in _FIXED_STORAGE},
    )


def _signing(values: Values) -> SigningConfig:
    size = values["inter.worker.key.size"]
    return SigningConfig(
        key_algorithm=values.text("inter.worker.key.generation.algorithm"),
        key_size=size if isinstance(size, int) else None,
        key_ttl_ms=values.integer("inter.worker.key.ttl.ms"),
        signature_algorithm=values.text(_SIGNATURE),
        verification_algorithms=values.items_of(_VERIFICATION),
    )


def _restart(values: Values) -> RestartConfig:
    return RestartConfig(
        enabled=values.boolean("errors.restart.enabled"),
        max_attempts=values.integer("errors.restart.max.attempts"),
        backoff_ms=values.integer("errors.restart.backoff.ms"),
        backoff_max_ms=values.integer("errors.restart.backoff.max.ms"),
        reset_ms=values.integer("errors.restart.reset.ms"),
    )


def _starting(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name.startswith(prefix)}
