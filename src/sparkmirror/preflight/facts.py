"""What was seen of clusters: plain data, filled by `probing`, judged by the rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sparkmirror.errors import KafkaError
from sparkmirror.kafka.dry_run import Creation
from sparkmirror.kafka.rights import Rights, TopicRights

Versions = Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Reach:
    """One address and what came of knocking there."""

    host: str
    port: int
    failure: KafkaError | None = None
    versions: Versions = field(default_factory=dict)
    node: int | None = None
    """The broker that advertises the address; None for a bootstrap address."""

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """One cluster as this client sees it; without `brokers` where no bootstrap address answered."""

    alias: str
    bootstrap: tuple[Reach, ...]
    brokers: tuple[Reach, ...] = ()
    cluster_id: str = ""
    failure: KafkaError | None = None
    """Why it could not be asked any further."""

    @property
    def answers(self) -> bool:
        return self.failure is None

    @property
    def usable(self) -> int:
        """How many of its brokers can be reached."""
        return sum(broker.failure is None for broker in self.brokers)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """One topic: `configs` are all its properties, `own` those that were set for it."""

    name: str
    partitions: int
    replicas: int
    configs: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ages:
    """The times of a topic's oldest and newest records, in milliseconds since 1970; None where they are not known."""

    oldest: int | None = None
    newest: int | None = None


@dataclass(frozen=True, slots=True)
class Pair:
    """A topic that would be copied and what there is, or would be, of it on the target."""

    source: TopicFacts
    remote: str
    target: TopicFacts | None = None
    creation: Creation | None = None
    ages: Ages = field(default_factory=Ages)


@dataclass(frozen=True, slots=True)
class SideRights:
    """What this client may do on one side of a flow; None where brokers do not tell."""

    cluster: Rights | None
    topics: Mapping[str, TopicRights] = field(default_factory=dict)
    groups: Mapping[str, Rights | None] = field(default_factory=dict)
    creations: Mapping[str, Creation] = field(default_factory=dict)
