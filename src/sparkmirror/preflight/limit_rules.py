"""What a target would refuse or lose: topics with their copies, factors and broker counts in, findings out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from sparkmirror.config.source import SourceConfig
from sparkmirror.kafka import messages
from sparkmirror.kafka.property_support import LeftOut
from sparkmirror.policy.filters import ConfigPropertyFilter
from sparkmirror.preflight.facts import Pair
from sparkmirror.preflight.findings import Finding, error, note, ok, some, warning

_FACTOR, _SIZE, _TIME, _RETENTION = (
    "replication-factor",
    "max-message-bytes",
    "timestamps",
    "retention",
)
_NEVER = 0x7FFFFFFFFFFFFFFF
_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class Factor:
    """A replication factor that a setting asks for, and the cluster that has to have as many brokers."""

    key: str
    value: int
    explicit: bool
    cluster: str
    brokers: int
    topic: str
    """The topic it is for, or words for several."""


def factor_findings(factors: Iterable[Factor]) -> list[Finding]:
    """Factors that a cluster cannot give: refused if somebody chose them, lowered if they are defaults."""
    found = []
    lowered: dict[tuple[str, int, int], list[Factor]] = {}
    for factor in factors:
        if factor.value <= factor.brokers:
            continue
        if not factor.explicit:
            key = (factor.cluster, factor.brokers, factor.value)
            lowered.setdefault(key, []).append(factor)
            continue
        found.append(
            error(
                _FACTOR,
                f"{factor.key}={factor.value}, but cluster {factor.cluster} has {factor.brokers} broker(s): "
                f"{factor.topic} cannot be created.",
                f"Set {factor.key} to {factor.brokers} or less, or -1 for the brokers' default; or add brokers.",
            )
        )
    for (cluster, brokers, value), same in lowered.items():
        keys = dict.fromkeys(factor.key for factor in same)
        found.append(
            note(
                _FACTOR,
                f"Cluster {cluster} has {brokers} broker(s): {some(factor.topic for factor in same)} would get {brokers} "
                f"replica(s) instead of the default {value}.",
                f"Set {', '.join(keys)} to choose it.",
            )
        )
    return found


def property_findings(left_out: Iterable[LeftOut], alias: str) -> list[Finding]:
    """Properties that new copies would not get."""
    topics: dict[tuple[str, str], list[str]] = {}
    for one in left_out:
        topics.setdefault((one.name, one.why), []).append(one.topic)
    return [
        warning(
            "properties",
            f"{some(names)} on cluster {alias} would be created without {name}: {why}.",
            f"Nothing to do if that is right; config.properties.exclude={name} (beside the default list) says so.",
        )
        for (name, why), names in topics.items()
    ]


def topic_findings(pairs: Sequence[Pair], config: SourceConfig, now_ms: int) -> list[Finding]:
    """All that can be said of topics and their copies."""
    found: list[Finding] = []
    for rule in _RULES:
        found += rule(pairs, config, now_ms)
    if pairs and not found:
        found.append(
            ok(_SIZE, f"Sizes, times and retention of {len(pairs)} topic(s) fit the target.")
        )
    return found


def expected(pair: Pair, name: str, config: SourceConfig) -> str | None:
    """The value of a property that a copy will have: what is synced from the source, else what is or would be there."""
    copied = pair.source.own.get(name)
    is_synced = config.sync_topic_configs_enabled or pair.target is None
    if copied is not None and is_synced and _filter(config.config_properties_exclude).matches(name):
        return copied
    if pair.target is not None:
        return pair.target.configs.get(name)
    configs = None if pair.creation is None else pair.creation.configs
    return None if configs is None else configs.get(name)


@cache
def _filter(exclude: tuple[str, ...]) -> ConfigPropertyFilter:
    return ConfigPropertyFilter(exclude)


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _creation(pairs: Sequence[Pair], config: SourceConfig, now_ms: int) -> Iterable[Finding]:
    """What the controller says to topics that would be created."""
    refused: dict[str, list[Pair]] = {}
    for pair in pairs:
        failure = None if pair.creation is None else pair.creation.error
        if failure is None or failure.code in (
            messages.INVALID_REPLICATION_FACTOR,
            messages.TOPIC_AUTHORIZATION_FAILED,
            31,
        ):
            continue  # told with its setting, or with its ACL
        refused.setdefault(failure.name, []).append(pair)
    for same in refused.values():
        failure = same[0].creation.error if same[0].creation else None
        more = f" ({len(same) - 1} other topic(s) likewise.)" if len(same) > 1 else ""
        if failure is not None:
            yield error("creation", f"{failure.message}{more}", failure.remedy)


def _sizes(pairs: Sequence[Pair], config: SourceConfig, now_ms: int) -> Iterable[Finding]:
    smaller: dict[tuple[int, int], list[str]] = {}
    for pair in pairs:
        ours = _number(pair.source.configs.get("max.message.bytes"))
        theirs = _number(expected(pair, "max.message.bytes", config))
        if ours is not None and theirs is not None and theirs < ours:
            smaller.setdefault((ours, theirs), []).append(pair.remote)
    for (ours, theirs), names in smaller.items():
        yield warning(
            _SIZE,
            f"{some(names)}: the source takes batches of {ours} bytes (max.message.bytes), the target {theirs}.",
            f"Larger batches are split, but one record of more than {theirs} bytes cannot be copied and stops its "
            f"partition. Set max.message.bytes={ours} on the remote topic(s), or message.max.bytes on the target's "
            "brokers.",
        )


def _in_sync(pairs: Sequence[Pair], config: SourceConfig, now_ms: int) -> Iterable[Finding]:
    short: dict[tuple[int, int], list[str]] = {}
    for pair in pairs:
        least = _number(expected(pair, "min.insync.replicas", config))
        replicas = -1
        if pair.target is not None:
            replicas = pair.target.replicas
        elif pair.creation is not None and pair.creation.error is None:
            replicas = pair.creation.replicas
        if least is not None and 0 < replicas < least:
            short.setdefault((least, replicas), []).append(pair.remote)
    for (least, replicas), names in short.items():
        yield error(
            "min-insync-replicas",
            f"{some(names)}: min.insync.replicas is {least}, but there are only {replicas} replica(s), so nothing can be "
            "written (NOT_ENOUGH_REPLICAS).",
            f"Set min.insync.replicas to {replicas} or less on the target, or replication.factor to at least {least}.",
        )


def _times(pairs: Sequence[Pair], config: SourceConfig, now_ms: int) -> Iterable[Finding]:
    stamped: list[str] = []
    for pair in pairs:
        if expected(pair, "message.timestamp.type", config) == "LogAppendTime":
            stamped.append(pair.remote)
            continue
        yield from _before(pair, config, now_ms)
        yield from _after(pair, config, now_ms)
    if stamped:
        yield warning(
            _TIME,
            f"{some(stamped)}: message.timestamp.type is LogAppendTime on the target, so copies get the time of their "
            "arrival.",
            "Set message.timestamp.type=CreateTime on the remote topic(s) to keep the records' times.",
        )


def _before(pair: Pair, config: SourceConfig, now_ms: int) -> Iterable[Finding]:
    limit = _limit(pair, config, "before")
    oldest = pair.ages.oldest
    if oldest is not None and 0 <= limit < now_ms - oldest:
        yield error(
            _TIME,
            f"{pair.source.name} has records that are {_span(now_ms - oldest)} old, but {pair.remote} takes none older "
            f"than {_span(limit)} (message.timestamp.before.max.ms).",
            f"Raise message.timestamp.before.max.ms of {pair.remote}, or log.message.timestamp.before.max.ms of the "
            "target's brokers; else they are refused (INVALID_TIMESTAMP).",
        )


def _after(pair: Pair, config: SourceConfig, now_ms: int) -> Iterable[Finding]:
    newest = pair.ages.newest
    if newest is None or newest <= now_ms:
        return
    limit, ahead = _limit(pair, config, "after"), newest - now_ms
    if 0 <= limit < ahead:
        yield error(
            _TIME,
            f"{pair.source.name} has records whose time is {_span(ahead)} ahead of this machine's clock, but "
            f"{pair.remote} takes none further ahead than {_span(limit)} (message.timestamp.after.max.ms).",
            f"Raise message.timestamp.after.max.ms of {pair.remote}, or correct the clocks.",
        )
    elif ahead > 60_000:
        yield note(
            _TIME,
            f"{pair.source.name} has records whose time is {_span(ahead)} ahead of this machine's clock.",
            "Check the clocks of producers and of this machine.",
        )


def _limit(pair: Pair, config: SourceConfig, side: str) -> int:
    value = _number(expected(pair, f"message.timestamp.{side}.max.ms", config))
    return -1 if value is None or value == _NEVER else value


def _retention(pairs: Sequence[Pair], config: SourceConfig, now_ms: int) -> Iterable[Finding]:
    for pair in pairs:
        kept = _number(expected(pair, "retention.ms", config))
        policy = expected(pair, "cleanup.policy", config) or "delete"
        if kept is None or kept < 0 or pair.ages.oldest is None or "delete" not in policy:
            continue
        age = now_ms - pair.ages.oldest
        if age > kept and _is_longer_at_source(pair, kept):
            yield warning(
                _RETENTION,
                f"{pair.source.name} has records that are {_span(age)} old, and {pair.remote} keeps them for "
                f"{_span(kept)} only (retention.ms): the older ones would be deleted soon after they were copied.",
                f"Set retention.ms of {pair.remote} to what the source has, or let it be copied "
                "(sync.topic.configs.enabled, use.defaults.from=source).",
            )


def _is_longer_at_source(pair: Pair, kept: int) -> bool:
    """The same retention on both sides loses nothing: the source is about to delete them too."""
    ours = _number(pair.source.configs.get("retention.ms"))
    return ours is None or ours < 0 or ours > kept


def _compaction(pairs: Sequence[Pair], config: SourceConfig, now_ms: int) -> Iterable[Finding]:
    names = [
        pair.remote
        for pair in pairs
        if "compact" in (expected(pair, "cleanup.policy", config) or "")
        and "compact" not in pair.source.configs.get("cleanup.policy", "compact")
    ]
    if names:
        yield note(
            "compaction",
            f"{some(names)}: compacted on the target, but not at the source: records without a key would be refused, and "
            "older values of a key deleted.",
            "Set cleanup.policy=delete on the remote topic(s) unless that is meant.",
        )


def _span(ms: int) -> str:
    """A time span in words."""
    if ms >= 2 * _DAY_MS:
        return f"{ms // _DAY_MS} days"
    if ms >= 2 * _HOUR_MS:
        return f"{ms // _HOUR_MS} hours"
    return f"{ms // 60_000} minutes" if ms >= 120_000 else f"{ms // 1000} seconds"


_RULES: tuple[Callable[[Sequence[Pair], SourceConfig, int], Iterable[Finding]], ...] = (
    _creation,
    _sizes,
    _in_sync,
    _times,
    _retention,
    _compaction,
)
