"""The naming dry run: flows and the topics of their clusters in; what is copied under which name, loops and collisions out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from sparkmirror.config.source import SourceConfig
from sparkmirror.formats.progress import progress_topic
from sparkmirror.policy.filters import TopicFilter, compile_java_patterns, should_replicate_topic
from sparkmirror.policy.naming import is_cycle
from sparkmirror.preflight.findings import Finding, error, note, ok, some, warning
from sparkmirror.transforms.chain import TransformChain

_CHECK = "naming"
_LITERAL = re.compile(r"[A-Za-z0-9._-]+")
_HOPS = 12
_DEFAULT_EXCLUDE = frozenset({r"mm2.*\.internal", r".*\.replica", "__.*", r".*[\-\.]internal"})


@dataclass(frozen=True, slots=True)
class Planned:
    """What becomes of one topic: its name on the other side, or why it stays."""

    topic: str
    remote: str | None
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class Copying:
    """One flow and what it finds: the topics of its source (True: kept by Kafka itself) and of its target."""

    config: SourceConfig
    source_id: str
    target_id: str
    """What the clusters call themselves; aliases of the same cluster have the same id."""
    source_topics: Mapping[str, bool]
    target_topics: Collection[str] = ()
    transforms: TransformChain | None = None
    _filter: TopicFilter = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_filter", self.config.topic_filter())

    @property
    def name(self) -> str:
        return f"{self.config.source_alias}->{self.config.target_alias}"

    def remote(self, topic: str) -> str | None:
        """What a topic is called on the target, None if it is not copied."""
        config = self.config
        wanted = should_replicate_topic(
            config.policy,
            self._filter,
            config.heartbeats_replication,
            config.target_alias,
            topic,
        )
        if not wanted:
            return None
        name = config.policy.format_remote_topic(config.source_alias, topic)
        return name if self.transforms is None else self.transforms.target(name) or name

    def is_routed(self, topic: str) -> bool:
        """Whether transforms name the target of each record by itself, so that nobody can tell it before."""
        if self.transforms is None:
            return False
        config = self.config
        name = config.policy.format_remote_topic(config.source_alias, topic)
        return self.transforms.target(name) is None

    def plan(self) -> list[Planned]:
        """Every topic of the source, in order of name."""
        return [
            self._planned(name, is_internal)
            for name, is_internal in sorted(self.source_topics.items())
        ]

    def _planned(self, topic: str, is_internal: bool) -> Planned:
        if is_internal:
            return Planned(topic, None, "kept by Kafka itself")
        remote = self.remote(topic)
        return Planned(topic, remote, "" if remote is not None else self._why_not(topic))

    def _why_not(self, topic: str) -> str:
        config = self.config
        if config.policy.is_internal_topic(topic):
            return "internal topic"
        excluded = _matching(topic, config.topics_exclude, "topics.exclude")
        if excluded is not None:
            return f"topics.exclude has {excluded}"
        if not self._filter.matches(topic) and not config.policy.is_heartbeats_topic(topic):
            return "not in topics"
        if is_cycle(config.policy, topic, config.target_alias):
            return f"it comes from {config.target_alias}"
        return "not in topics"


def _matching(topic: str, patterns: Iterable[str], key: str) -> str | None:
    return next((p for p in patterns if compile_java_patterns([p], key).matches(topic)), None)


def plan_findings(flow: Copying, hidden: Collection[str]) -> list[Finding]:
    """What would be copied, what would not, and what was asked for in vain."""
    plan = flow.plan()
    copied = {one.topic: one.remote for one in plan if one.remote is not None}
    found: list[Finding] = []
    if copied:
        names = (t if t == r else f"{t} as {r}" for t, r in copied.items())
        found.append(ok(_CHECK, f"{len(copied)} topic(s) would be copied: {some(names, 8)}."))
    reasons: dict[str, list[str]] = {}
    for one in plan:
        if one.remote is None:
            reasons.setdefault(one.why_not, []).append(one.topic)
    for why, topics in reasons.items():
        found.append(ok(_CHECK, f"{len(topics)} topic(s) would not ({why}): {some(topics)}."))
    routed = [topic for topic in copied if flow.is_routed(topic)]
    if routed:
        text = f"Transforms name the target of each record of {some(routed)}: those topics are not looked at."
        found.append(note(_CHECK, text))
    found += _asked_in_vain(flow, copied, hidden)
    found += _useless_excludes(flow)
    return found


def _asked_in_vain(
    flow: Copying, copied: Mapping[str, str | None], hidden: Collection[str]
) -> list[Finding]:
    found = []
    visible = [name for name, is_internal in flow.source_topics.items() if not is_internal]
    for pattern in flow.config.topics:
        compiled = compile_java_patterns([pattern], "topics")
        if pattern in hidden or any(compiled.matches(name) for name in visible):
            continue
        is_name = _LITERAL.fullmatch(pattern) is not None
        message = (
            f"topics names {pattern}, which is not on {flow.config.source_alias}."
            if is_name
            else f"The pattern {pattern} of topics matches no topic of {flow.config.source_alias}."
        )
        found.append(
            warning(
                _CHECK,
                message + did_you_mean(pattern, visible),
                "It is copied as soon as it exists, or correct the name."
                if is_name
                else "Patterns are Java regular expressions for whole names, separated by commas.",
            )
        )
    wanted = [topic for topic in copied if not flow.config.policy.is_heartbeats_topic(topic)]
    if not wanted and not found:
        reason = "has no topics that we may see" if not visible else "has none that would be copied"
        found.append(
            warning(
                _CHECK,
                f"Nothing would be copied: {flow.config.source_alias} {reason}.",
                "Check topics and topics.exclude; topics without the ACL Describe cannot be seen.",
            )
        )
    return found


def did_you_mean(pattern: str, names: Sequence[str]) -> str:
    plain = pattern.replace("\\", "").replace(".*", "").replace("*", "")
    close = get_close_matches(plain, names, n=1, cutoff=0.7)
    if not close:
        lower = {name.lower(): name for name in names}
        close = [lower[plain.lower()]] if plain.lower() in lower else []
    return f" Did you mean {close[0]}?" if close else ""


def _useless_excludes(flow: Copying) -> list[Finding]:
    """Patterns of the user that exclude nothing: often a slip of the pen."""
    found = []
    for pattern in flow.config.topics_exclude:
        if pattern in _DEFAULT_EXCLUDE:
            continue
        compiled = compile_java_patterns([pattern], "topics.exclude")
        if not any(compiled.matches(name) for name in flow.source_topics):
            meant = did_you_mean(pattern, list(flow.source_topics))
            found.append(
                note(_CHECK, f"topics.exclude has {pattern}, which no topic matches.{meant}")
            )
    return found


def remote_findings(flow: Copying, counts: Mapping[str, tuple[int, int | None]]) -> list[Finding]:
    """What is there already under the names of copies; `counts` has the partitions of each topic and, if there, of its copy."""
    found = []
    there = [topic for topic, (_, remote) in counts.items() if remote is not None]
    is_known = progress_topic(flow.config.source_alias) in flow.target_topics
    if there and not is_known:
        names = [flow.remote(topic) or topic for topic in there]
        found.append(
            note(
                _CHECK,
                f"{some(names)} exist(s) on {flow.config.target_alias} and was not made by this flow "
                f"(there is no {progress_topic(flow.config.source_alias)}).",
                "Copies are appended to what is there; choose another policy or alias if that is not meant.",
            )
        )
    more = [t for t, (count, remote) in counts.items() if remote is not None and remote > count]
    if more:
        found.append(
            note(
                _CHECK,
                f"The copies of {some(more)} have more partitions than the source: the further ones stay empty.",
            )
        )
    fewer = [t for t, (count, remote) in counts.items() if remote is not None and remote < count]
    if fewer:
        found.append(note(_CHECK, f"The copies of {some(fewer)} would get more partitions."))
    return found


def collision_findings(flows: Sequence[Copying]) -> list[Finding]:
    """Topics that end up in one."""
    writers: dict[tuple[str, str], list[str]] = {}
    for flow in flows:
        for one in flow.plan():
            if one.remote is not None:
                key = (flow.target_id, one.remote)
                writers.setdefault(key, []).append(f"{one.topic} of {flow.config.source_alias}")
    return [
        warning(
            _CHECK,
            f"{some(origins)} would all be copied into the one topic {remote}.",
            "Their records would be mixed and group offsets ambiguous. Use DefaultReplicationPolicy, or exclude the topic in "
            "all flows but one.",
        )
        for (_, remote), origins in writers.items()
        if len(origins) > 1
    ]


def loop_findings(flows: Sequence[Copying]) -> list[Finding]:
    """Records that would come back to a topic that they were copied from, or be copied on without end."""
    loops: dict[tuple[str, ...], list[str]] = {}
    for flow in flows:
        for one in flow.plan():
            if one.remote is not None:
                way = way_back(flows, (flow.source_id, one.topic))
                if way:
                    loops.setdefault(way, []).append(one.topic)
    seen: set[frozenset[str]] = set()
    found = []
    for way, topics in loops.items():
        if frozenset(way) in seen:
            continue
        seen.add(frozenset(way))
        found.append(
            error(
                "loop",
                f"{some(topics)} would be copied in a circle: {' and '.join(way)} lead back to where the records came from, "
                "and every record would be copied again and again.",
                "Use DefaultReplicationPolicy, whose names tell where a topic comes from, or let topics and topics.exclude of "
                ""
                "the flows pick different topics.",
            )
        )
    return found


def way_back(flows: Sequence[Copying], start: tuple[str, str]) -> tuple[str, ...]:
    """The flows by which a topic comes back to itself, or of which there is no end; none if it does not."""
    ways: list[tuple[tuple[str, str], tuple[str, ...]]] = [(start, ())]
    while ways:
        (cluster, topic), way = ways.pop()
        for flow in flows:
            remote = flow.remote(topic) if flow.source_id == cluster else None
            if remote is None:
                continue
            there, so_far = (flow.target_id, remote), (*way, flow.name)
            if there == start or len(so_far) > _HOPS:
                return tuple(dict.fromkeys(so_far))
            ways.append((there, so_far))
    return ()


def same_cluster_findings(flow: Copying) -> list[Finding]:
    """A flow whose two sides are one cluster."""
    if not flow.source_id or flow.source_id != flow.target_id:
        return []
    return [
        warning(
            "cluster-id",
            f"{flow.config.source_alias} and {flow.config.target_alias} are the same cluster (id {flow.source_id}).",
            "Check bootstrap.servers of both; if it is meant, let topics name the topics one by one, so that copies are not "
            "copied again.",
        )
    ]
