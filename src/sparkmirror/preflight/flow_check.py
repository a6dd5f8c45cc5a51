"""One flow against its clusters: the flow and what was seen of them in, findings out."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sparkmirror.config.source import AT_LEAST_ONCE_NOTE, AT_LEAST_ONCE_REMEDY
from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.kafka import rights
from sparkmirror.kafka.access.security import Security
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.api_versions import INIT_PRODUCER_ID
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.denials import principal_of
from sparkmirror.kafka.dry_run import Creation, try_creating, try_fitting
from sparkmirror.kafka.property_support import LeftOut
from sparkmirror.offsets.groups import Groups
from sparkmirror.preflight import naming, probing
from sparkmirror.preflight.access_rules import access_findings, families_of
from sparkmirror.preflight.factors import asked_factors, storage_findings, storages
from sparkmirror.preflight.facts import Ages, Pair, SideRights, TopicFacts
from sparkmirror.preflight.findings import Finding, error, failed, note, without_repeats
from sparkmirror.preflight.flow import Flow
from sparkmirror.preflight.limit_rules import factor_findings, property_findings, topic_findings
from sparkmirror.preflight.naming import Copying
from sparkmirror.preflight.privileges import Privilege, Side
from sparkmirror.preflight.probing import Deadline, Seen
from sparkmirror.preflight.query_rules import asked_topic_findings

_LITERAL = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Depth:
    """How closely to look."""

    topics: int = 500
    groups: int = 20
    ages: bool = True
    """Whether to read records of topics, to see how old they are."""


class FlowCheck:
    """What there is to say of one flow.

    Invariant: `clusters` has only sides that answer; whatever needs one that does not is left out, since that was told already.
    """

    def __init__(
        self,
        flow: Flow,
        seen: Mapping[Side, Seen],
        deadline: Deadline,
        depth: Depth | None = None,
    ) -> None:
        self.flow = flow
        self._depth = depth or Depth()
        self._deadline = deadline
        self._seen = seen
        self._clusters = {
            side: found.cluster for side, found in seen.items() if found.cluster is not None
        }
        self.copying: Copying | None = None
        self._hidden: set[str] = set()
        self._copied: dict[str, str] = {}
        self._left_out: list[LeftOut] = []

    def prepare(self) -> None:
        """List the topics of both sides, and work out what would be copied."""
        for cluster in self._clusters.values():
            cluster.refresh(None)
        self.plan()

    def plan(self) -> None:
        """Work out what would be copied, of the topics that are known."""
        source, config = self._clusters.get("source"), self.flow.copying
        if source is None or config is None or not config.enabled:
            return
        target = self._clusters.get("target")
        self.copying = Copying(
            config,
            self._id("source"),
            self._id("target"),
            {name: info.internal for name, info in source.topics.items()},
            () if target is None else list(target.topics),
            self.flow.transforms,
        )
        self._copied = {
            one.topic: one.remote
            for one in self.copying.plan()
            if one.remote is not None and not self.copying.is_routed(one.topic)
        }
        unseen = [n for n in config.topics if _LITERAL.fullmatch(n) and n not in source.topics]
        asked = rights.topic_rights(source, unseen)
        self._hidden = {name for name, found in asked.items() if found.hidden}

    def findings(self) -> list[Finding]:
        """All of them; an error of a cluster on the way is one of them."""
        found: list[Finding] = []
        steps = (
            self._naming,
            self._delivery,
            self._factors,
            self._topics,
            self._storage,
            self._access,
        )
        for step in steps:
            if self._deadline.left <= 0:
                late = f"Not everything of {self.flow.title} was looked at in {self._deadline.seconds:g} s."
                found.append(error("time", late, "Give it more time with --timeout."))
                break
            try:
                found += step()
            except KafkaError as failure:
                found.append(failed("kafka", failure))
        return without_repeats(found)

    def _id(self, side: Side) -> str:
        seen = self._seen.get(side)
        known = "" if seen is None else seen.facts.cluster_id
        alias = self.flow.source_alias if side == "source" else self.flow.target_alias
        return known or f"alias {alias}"

    def _delivery(self) -> Iterable[Finding]:
        """Whether the target can give what `mirror.delivery` asks for."""
        config, target = self.flow.copying, self._clusters.get("target")
        if config is None or not config.enabled or target is None:
            return
        offered = target.any_connection().versions
        if not config.exactly_once:
            yield note("delivery", f"{self.flow.title}: {AT_LEAST_ONCE_NOTE}")
        elif INIT_PRODUCER_ID.version(offered) is None:
            said = INIT_PRODUCER_ID.is_offered(offered)
            yield error(
                "delivery",
                f"{target.settings} {said}: exactly-once delivery is not possible, and nothing is copied.",
                AT_LEAST_ONCE_REMEDY,
            )

    # -- names and topics -------------------------------------------------------------------------

    def _naming(self) -> Iterable[Finding]:
        if self.copying is None:
            return []
        found = naming.same_cluster_findings(self.copying)
        found += naming.plan_findings(self.copying, self._hidden)
        found += asked_topic_findings(self.copying)
        source, target = self._clusters.get("source"), self._clusters.get("target")
        if source is not None and target is not None:
            counts = {
                topic: (self._partitions(source, topic), _count(target, remote))
                for topic, remote in self._copied.items()
            }
            found += naming.remote_findings(self.copying, counts)
        return found

    def _partitions(self, source: Cluster, topic: str) -> int:
        """How many partitions the copy of a topic should have."""
        config = self.flow.copying
        wanted = None if config is None else config.wanted_partitions(topic)
        return wanted or len(source.topics[topic].partitions)

    def _topics(self) -> Iterable[Finding]:
        config = self.flow.copying
        source, target = self._clusters.get("source"), self._clusters.get("target")
        if config is None or source is None or target is None:
            return
        names = sorted(self._copied)[: self._depth.topics]
        if len(names) < len(self._copied):
            yield note(
                "topics",
                f"Only the first {len(names)} of {len(self._copied)} topics are looked at.",
            )
        now_ms = time.time_ns() // 1_000_000
        pairs = self._pairs(source, target, names)
        yield from property_findings(self._left_out, config.target_alias)
        yield from topic_findings(pairs, config, now_ms)

    def _pairs(self, source: Cluster, target: Cluster, names: Sequence[str]) -> list[Pair]:
        here = _described(source, names)
        there = _described(target, [self._copied[name] for name in names])
        created = self._try_remote(target, here)
        times = self._ages(source, names) if self._depth.ages else {}
        return [
            Pair(
                here[name],
                remote := self._copied[name],
                there.get(remote),
                created.get(remote),
                times.get(name, Ages()),
            )
            for name in names
            if name in here
        ]

    def _ages(self, source: Cluster, names: Sequence[str]) -> dict[str, Ages]:
        try:
            return probing.ages(source, names, self._deadline)
        except BrokerError as denied:  # told as the missing ACL that it is
            if denied.retriable:
                raise
            return {}

    def _try_remote(self, target: Cluster, topics: Mapping[str, TopicFacts]) -> dict[str, Creation]:
        config = self.flow.copying
        assert config is not None  # noqa: S101 - there are pairs
        wanted = config.config_property_filter()
        brokers = len(target.brokers)
        factor = config.replication_factor
        if factor > brokers:  # told with its setting
            factor = brokers
        new = [
            NewTopic(
                self._copied[name],
                config.wanted_partitions(name) or topic.partitions,
                factor,
                {key: value for key, value in topic.own.items() if wanted.matches(key)},
            )
            for name, topic in topics.items()
            if self._copied[name] not in target.topics
        ]
        found, self._left_out = try_fitting(target, new)
        return found

    # -- replication factors and the worker's topics ------------------------------------------------

    def _factors(self) -> Iterable[Finding]:
        target = self._clusters.get("target")
        remote = [r for r in self._copied.values() if target is None or r not in target.topics]
        return factor_findings(asked_factors(self.flow, self._clusters, remote))

    def _storage(self) -> Iterable[Finding]:
        """The worker's topics that are there."""
        worker, cluster = self.flow.worker_config, self._clusters.get("worker")
        if worker is None or cluster is None:
            return []
        names = [storage.name for _, storage in storages(worker)]
        return storage_findings(worker, _described(cluster, names))

    # -- access -----------------------------------------------------------------------------------

    def _access(self) -> Iterable[Finding]:
        privileges = self.flow.privileges()
        families = families_of(
            [*sorted(self._copied)[: self._depth.topics], *sorted(self._hidden)],
            sorted(set(self._copied.values()))[: self._depth.topics],
            self._groups(),
        )
        wanted_on: dict[tuple[object, Security], tuple[Cluster, list[Privilege]]] = {}
        for side, cluster in self._clusters.items():  # the worker's may be the target, too
            key = (cluster.settings.bootstrap, cluster.settings.security)
            _, on_side = wanted_on.setdefault(key, (cluster, []))
            on_side += [one for one in privileges if one.side == side]
        for cluster, wanted in wanted_on.values():
            if wanted:
                seen = side_rights(cluster, wanted, families)
                principal = principal_of(cluster.settings.security)
                where = f"cluster {cluster.settings.alias}"
                yield from access_findings(wanted, seen, families, principal, where)

    def _groups(self) -> list[str]:
        """The groups that are named one by one, and some of those that a pattern finds."""
        config, source = self.flow.checkpointing, self._clusters.get("source")
        if config is None or source is None:
            return []
        named = [name for name in config.groups if _LITERAL.fullmatch(name)]
        wanted = config.group_filter()
        listed = sorted(g.group for g in Groups(source).listings() if wanted.matches(g.group))
        return list(dict.fromkeys([*named, *listed]))[: self._depth.groups]


def side_rights(
    cluster: Cluster, privileges: Sequence[Privilege], families: Mapping[str, Sequence[str]]
) -> SideRights:
    """What is allowed of all that a side needs."""

    def names(resource: str) -> list[str]:
        found = [
            name
            for one in privileges
            if one.resource == resource
            for name in (families.get(one.family, ()) if one.family else (one.name,))
        ]
        return list(dict.fromkeys(found))

    topics = rights.topic_rights(cluster, names("topic"))
    to_create = [
        name
        for one in privileges
        if one.creates
        for name in (families.get(one.family, ()) if one.family else (one.name,))
        if name in topics and not topics[name].exists
    ]
    new = [NewTopic(name, 1, -1, {}) for name in dict.fromkeys(to_create)]
    return SideRights(
        rights.cluster_rights(cluster),
        topics,
        rights.group_rights(cluster, [group for group in names("group") if group]),
        try_creating(cluster, new),
    )


def _described(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicFacts]:
    try:
        return probing.topics(cluster, names)
    except BrokerError as denied:  # told as the missing ACL that it is
        if denied.retriable:
            raise
        return probing.bare_topics(cluster, names)


def _count(cluster: Cluster, topic: str) -> int | None:
    info = cluster.topics.get(topic)
    return None if info is None else len(info.partitions)
