"""The APIs of Kafka's protocol that we use: which versions of each we speak, and what is lost where a broker offers less.

What is chosen for a request is the newest version that both sides speak (`Api.version`), and nothing else is ever sent. An API is
required on some sides of a flow and optional on others: a flow that lacks an optional one copies, and loses what `Lack` says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from sparkmirror.errors import BrokerError

Versions = Mapping[int, tuple[int, int]]
"""The lowest and highest version of each API that a broker offers, by API key."""
Side = Literal["source", "target", "worker"]
"""What a cluster is of a flow."""

UNSUPPORTED_VERSION = 35
_BOTH: tuple[Side, ...] = ("source", "target")
_ANY: tuple[Side, ...] = ("source", "target", "worker")


class Lack(NamedTuple):
    """What goes less well where no version from `least` on is offered."""

    least: int
    sides: tuple[Side, ...]
    what: str
    unless: tuple[int, int] | None = None
    """An API key and a version: a broker that lacks that has a line of its own about the same."""


@dataclass(frozen=True, slots=True)
class Api:
    """An API and the versions of it that we speak."""

    key: int
    name: str
    least: int
    most: int
    required: tuple[Side, ...] = ()
    """Where nothing can be copied without it."""
    lacks: tuple[Lack, ...] = ()
    patience: float | None = None
    """Of one that we can do without: how many seconds a broker may take to answer."""

    @property
    def sides(self) -> set[Side]:
        """Where it is used."""
        return {*self.required, *(side for lack in self.lacks for side in lack.sides)}

    @property
    def without(self) -> str:
        """What is lost without it, as a sentence."""
        if self.required:
            return "Nothing can be copied without it."
        return f"Without it, {self.lacks[0].what}." if self.lacks else ""

    def version(self, offered: Versions, most: int | None = None) -> int | None:
        """The newest version that both sides speak; None if there is none."""
        low, high = offered.get(self.key, (0, -1))
        version = min(high, self.most if most is None else min(most, self.most))
        return None if version < max(low, self.least) else version

    def is_offered(self, offered: Versions) -> str:
        """What a broker offers of it, as a predicate: `does not offer Fetch`."""
        if self.version(offered) is not None:
            return f"offers {self.name} up to version {offered[self.key][1]}"
        if self.key not in offered:
            return f"does not offer {self.name}"
        return f"offers {self.name} in {self.range_of(offered)}, and we speak {self.least} to {self.most}"

    def range_of(self, offered: Versions) -> str:
        """What a broker offers of it, in words."""
        if self.key not in offered:
            return "not offered"
        low, high = offered[self.key]
        return f"versions {low} to {high}" if low != high else f"version {low}"


def unsupported(api: Api, offered: Versions, where: object) -> BrokerError:
    """The error where a broker offers no version of an API that we speak."""
    text = f"{where} {api.is_offered(offered)}."
    return BrokerError(UNSUPPORTED_VERSION, "UNSUPPORTED_VERSION", text, api.without)


_QUICK = 4.0
_IDS = (3, 10)
_NOTICED_LATE = "is deleted and created again is noticed when the metadata is read next"
_OTHER_SOURCE = (
    "topics have no ids. A source topic that is deleted and created again is noticed at a start or an error: by the checksum of "
    "the last copied batch, or by a log that ends before that batch. It may not be noticed where the new topic is filled beyond "
    "that batch within a second or while the connection is lost, or where retention or compaction removes the batch "
    "(docs/versions.md)"
)
_OTHER_TARGET = (
    "topics have no ids. mirror.recreated.target has no effect: a remote topic that is deleted and created again is filled "
    "again with the records that the source still has (docs/versions.md)"
)
_NO_IDEMPOTENCE = "writes cannot be idempotent, so nothing is copied unless mirror.delivery=at-least-once allows repeated records"
_NO_GROUPS = "offsets of groups can be neither read nor moved"
_NO_CONFIGS = (
    "topic properties are neither read nor kept in step, and internal topics are used as they are"
)
_NO_ACLS = "ACLs are not kept in step"

PRODUCE = Api(0, "Produce", 3, 13, ("target", "worker"), (
    Lack(7, ("target",), "batches with zstd are refused"),
    Lack(13, ("target",), f"a remote topic that {_NOTICED_LATE}", _IDS),
))  # fmt: skip
FETCH = Api(1, "Fetch", 4, 13, _ANY, (
    Lack(7, ("source",), "every fetch names all partitions"),
    Lack(10, ("source",), "batches with zstd cannot be read"),
    Lack(11, ("source",), "client.rack has no effect: records come from the leader"),
    Lack(13, ("source",), f"a source topic that {_NOTICED_LATE}", _IDS),
))  # fmt: skip
LIST_OFFSETS = Api(2, "ListOffsets", 1, 11, _ANY, (
    Lack(7, ("source",), "the newest time of records cannot be checked beforehand"),
))  # fmt: skip
# Before version 4 brokers may create what is asked for by name; Kafka 0.11 has both that and Fetch 4.
METADATA = Api(3, "Metadata", 4, 13, _ANY, (
    Lack(7, ("source",), "leader epochs are not known: a log that an unclean election cut back is noticed by its records only"),
    Lack(8, _ANY, "brokers do not tell what is allowed, so ACLs cannot be checked beforehand"),
    Lack(10, ("source",), _OTHER_SOURCE),
    Lack(10, ("target",), _OTHER_TARGET),
))  # fmt: skip
OFFSET_COMMIT = Api(8, "OffsetCommit", 2, 9, (), (Lack(2, ("target",), "groups are not moved"),))
OFFSET_FETCH = Api(9, "OffsetFetch", 1, 9, (), (Lack(1, _BOTH, _NO_GROUPS),))
FIND_COORDINATOR = Api(10, "FindCoordinator", 0, 6, ("worker",), (Lack(0, _BOTH, _NO_GROUPS),))
JOIN_GROUP = Api(11, "JoinGroup", 0, 9, ("worker",))
HEARTBEAT = Api(12, "Heartbeat", 0, 4, ("worker",))
LEAVE_GROUP = Api(13, "LeaveGroup", 0, 5, ("worker",))
SYNC_GROUP = Api(14, "SyncGroup", 0, 5, ("worker",))
# Version 6 tells nothing of a group that is not there, the ones before tell of a dead one.
DESCRIBE_GROUPS = Api(15, "DescribeGroups", 0, 5)
LIST_GROUPS = Api(16, "ListGroups", 0, 5, (), (Lack(0, ("source",), _NO_GROUPS),))
SASL_HANDSHAKE = Api(17, "SaslHandshake", 1, 1)  # logins over frames of their own came with it
API_VERSIONS = Api(18, "ApiVersions", 0, 3, _ANY)
CREATE_TOPICS = Api(19, "CreateTopics", 0, 7, (), (
    Lack(0, _ANY, "no topic is created: what is missing is named, with the command that creates it"),
))  # fmt: skip
DELETE_TOPICS = Api(20, "DeleteTopics", 0, 5)
DELETE_RECORDS = Api(21, "DeleteRecords", 0, 2)
INIT_PRODUCER_ID = Api(22, "InitProducerId", 0, 4, (), (
    Lack(0, ("target",), _NO_IDEMPOTENCE),
    Lack(3, ("target",), "a leader that has forgotten a producer makes the copy begin a new numbering there"),
))  # fmt: skip
OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", 1, 4, (), (
    Lack(1, ("source",), "a log that an unclean election cut back is noticed by the checksum of the last copied batch only"),
), _QUICK)  # fmt: skip
DESCRIBE_ACLS = Api(29, "DescribeAcls", 0, 3, (), (Lack(0, _BOTH, _NO_ACLS),), _QUICK)
CREATE_ACLS = Api(30, "CreateAcls", 0, 3, (), (Lack(0, ("target",), _NO_ACLS, (29, 0)),))
DELETE_ACLS = Api(31, "DeleteAcls", 0, 3)
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 0, 4, (), (Lack(0, _ANY, _NO_CONFIGS),), _QUICK)
SASL_AUTHENTICATE = Api(36, "SaslAuthenticate", 0, 2)
CREATE_PARTITIONS = Api(37, "CreatePartitions", 0, 3, (), (
    Lack(0, ("target",), "remote topics are not widened when their source topics are"),
))  # fmt: skip
INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", 0, 1, (), (
    Lack(0, ("target",), "topic properties are not kept in step"),
))  # fmt: skip
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 2, patience=_QUICK)
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", 0, 0, (), (
    Lack(0, ("target",), "after a restart the target's log is read instead of asking for its last record"),
), _QUICK)  # fmt: skip

_ALL = (
    PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, LEAVE_GROUP,
    SYNC_GROUP, DESCRIBE_GROUPS, LIST_GROUPS, SASL_HANDSHAKE, API_VERSIONS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS,
    INIT_PRODUCER_ID, OFFSET_FOR_LEADER_EPOCH, DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_CONFIGS, SASL_AUTHENTICATE,
    CREATE_PARTITIONS, INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CLUSTER, DESCRIBE_PRODUCERS,
)  # fmt: skip
APIS: Mapping[int, Api] = {api.key: api for api in _ALL}


def common(spoken: Sequence[Versions]) -> dict[int, tuple[int, int]]:
    """What all brokers of a cluster offer."""
    shared = set.intersection(*(set(versions) for versions in spoken)) if spoken else set()
    return {
        api: (max(one[api][0] for one in spoken), min(one[api][1] for one in spoken))
        for api in shared
    }


class Lost(NamedTuple):
    """An API of which a cluster offers too little, and what is lost by that."""

    api: Api
    lack: Lack
    is_missing: bool
    """Whether no version that we speak is offered at all."""


class Use(NamedTuple):
    """What a cluster offers of an API, which version is used, and what is lost; the latter two empty where that is nothing."""

    api: str
    offered: str
    used: str
    lost: str


def losses(offered: Versions, sides: Collection[Side]) -> Iterator[Lost]:
    """What a cluster with these versions loses as these sides of a flow; of each API and side the heaviest."""
    for api in _ALL:
        version = api.version(offered)
        for lack in _heaviest(api.lacks, -1 if version is None else version, sides):
            if lack.unless is None or _most(offered, lack.unless[0]) >= lack.unless[1]:
                yield Lost(api, lack, version is None)


def uses(offered: Versions | None, sides: Collection[Side]) -> list[Use]:
    """The APIs that are used on these sides of a flow; none if it is not known what is offered."""
    if offered is None:
        return []
    lost: dict[int, list[str]] = {
        api.key: ["nothing can be copied"] for api in missing(offered, sides)
    }
    for one in losses(offered, sides):
        if not (one.is_missing and one.api.key in lost):
            lost.setdefault(one.api.key, []).append(one.lack.what)
    used = [api for api in _ALL if not set(sides).isdisjoint(api.sides)]
    return [
        Use(
            api.name,
            api.range_of(offered),
            "" if (version := api.version(offered)) is None else str(version),
            "; ".join(lost.get(api.key, [])),
        )
        for api in used
    ]


def missing(offered: Versions, sides: Iterable[Side]) -> list[Api]:
    """The APIs without which nothing can be copied to or from a cluster with these versions."""
    wanted = set(sides)
    return [api for api in _ALL if wanted & set(api.required) and api.version(offered) is None]


def _heaviest(lacks: Iterable[Lack], version: int, sides: Collection[Side]) -> list[Lack]:
    found: dict[Side, Lack] = {}
    for lack in lacks:
        for side in lack.sides:
            if side in sides and version < lack.least:
                found.setdefault(side, lack)
    return list(dict.fromkeys(found.values()))


def _most(offered: Versions, api: int) -> int:
    return offered.get(api, (0, -1))[1]
