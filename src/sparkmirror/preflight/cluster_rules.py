"""Is a cluster there: what was seen of its addresses and brokers in, findings about reaching it and about its version out."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from sparkmirror.errors import AccessFailed
from sparkmirror.preflight.facts import ClusterFacts, Reach, Versions
from sparkmirror.preflight.findings import Finding, error, failed, note, ok, some, warning
from sparkmirror.preflight.privileges import Side

_REACH, _VERSION, _LOGIN = "reachability", "version", "authentication"

_ANY: tuple[Side, ...] = ("source", "target", "worker")


class _Lack(NamedTuple):
    """What goes less well with a broker that lacks a version of an API, as these sides of a flow."""

    api: int
    least: int
    since: str
    sides: tuple[Side, ...]
    what: str
    unless: tuple[int, int] | None = None
    """An API and its version: a broker that lacks that has a line of its own about the same."""


_TOPIC_IDS = (3, 10)
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
# Newest first.
_LACKS = (
    _Lack(0, 13, "4.1", ("target",), f"a remote topic that {_NOTICED_LATE}", _TOPIC_IDS),
    _Lack(1, 13, "3.1", ("source",), f"a source topic that {_NOTICED_LATE}", _TOPIC_IDS),
    _Lack(2, 7, "3.0", ("source",), "the newest time of records cannot be checked beforehand"),
    _Lack(61, 0, "2.8", ("target",), "after a restart the target's log is read instead of asking for its last record"),
    _Lack(*_TOPIC_IDS, "2.8", ("source",), _OTHER_SOURCE),
    _Lack(*_TOPIC_IDS, "2.8", ("target",), _OTHER_TARGET),
    _Lack(22, 3, "2.5", ("target",), "a leader that has forgotten a producer makes the copy begin a new numbering there"),
    _Lack(44, 0, "2.3", _ANY, "topic configs cannot be kept in step (they need IncrementalAlterConfigs)"),
    _Lack(3, 8, "2.3", _ANY, "brokers do not tell what is allowed, so ACLs cannot be checked beforehand"),
)  # fmt: skip
_FETCH, _PRODUCE = 1, 0
_LEAST_FETCH, _LEAST_PRODUCE = 11, 7


def cluster_findings(facts: ClusterFacts, sides: Collection[Side]) -> list[Finding]:
    """All that can be said of a cluster by itself; `sides`: what it is of the flows."""
    found = [*_bootstrap(facts), *_advertised(facts)]
    if facts.failure is not None:
        check = _LOGIN if isinstance(facts.failure, AccessFailed) else _REACH
        if not any(finding.message == facts.failure.message for finding in found):
            found.append(failed(check, facts.failure))
        return found
    found += _versions(facts, sides)
    return found


def _bootstrap(facts: ClusterFacts) -> Iterable[Finding]:
    reached = [reach for reach in facts.bootstrap if reach.failure is None]
    for reach in facts.bootstrap:
        if reach.failure is None:
            continue
        check = _LOGIN if isinstance(reach.failure, AccessFailed) else _REACH
        if reached:
            yield warning(
                check,
                reach.failure.message,
                f"The others of bootstrap.servers answer. {reach.failure.remedy}".strip(),
            )
        else:
            yield failed(check, reach.failure)


def _advertised(facts: ClusterFacts) -> Iterable[Finding]:
    lost = [broker for broker in facts.brokers if broker.failure is not None]
    for broker in lost:
        yield _unreachable(facts, broker)
    if facts.brokers and not lost:
        yield ok(
            _REACH,
            f"{len(facts.brokers)} broker(s) reached at the address(es) they advertise"
            f" ({some(b.address for b in facts.brokers)}); cluster id {facts.cluster_id or 'not told'}.",
        )


def _unreachable(facts: ClusterFacts, broker: Reach) -> Finding:
    assert broker.failure is not None  # noqa: S101 - only those are given
    known = [reach.address for reach in facts.bootstrap if reach.failure is None]
    if isinstance(broker.failure, AccessFailed):
        return failed(_LOGIN, broker.failure)
    if broker.address in known:
        return failed(_REACH, broker.failure)
    return error(
        "advertised-listener",
        f"Cluster {facts.alias} answers at {some(known)}, but its broker {broker.node} tells clients to connect to "
        f"{broker.address}, which cannot be reached from here: {_cause(broker)}",
        f"Set advertised.listeners of broker {broker.node} to an address that this machine can reach, or make {broker.host} "
        "resolve and be routed here. (MirrorMaker 2 would only log UNKNOWN_TOPIC_OR_PARTITION or time-outs.)",
    )


def _cause(broker: Reach) -> str:
    message = "" if broker.failure is None else broker.failure.message
    _, _, cause = message.partition("cannot be reached: ")
    return cause or message


def _versions(facts: ClusterFacts, sides: Collection[Side]) -> Iterable[Finding]:
    spoken = [broker.versions for broker in facts.brokers if broker.failure is None]
    if not spoken:
        return
    common = _common(spoken)
    if _most(common, _FETCH) < _LEAST_FETCH or _most(common, _PRODUCE) < _LEAST_PRODUCE:
        yield error(
            _VERSION,
            f"The brokers of {facts.alias} are older than Kafka 2.4 (Fetch up to version {_most(common, _FETCH)}).",
            "Upgrade the cluster: reading needs Fetch 11.",
        )
        return
    lacks = [lack for lack in _LACKS if _applies(lack, common, sides)]
    for lack in lacks:
        yield note(
            _VERSION, f"A broker of {facts.alias} is older than Kafka {lack.since}: {lack.what}."
        )
    if not lacks:
        yield ok(_VERSION, f"The brokers of {facts.alias} speak all that is used.")


def _applies(lack: _Lack, common: Versions, sides: Collection[Side]) -> bool:
    if lack.unless is not None and _most(common, lack.unless[0]) < lack.unless[1]:
        return False
    return _most(common, lack.api) < lack.least and not set(sides).isdisjoint(lack.sides)


def _most(versions: Versions, api: int) -> int:
    return versions.get(api, (0, -1))[1]


def _common(spoken: list[Versions]) -> dict[int, tuple[int, int]]:
    """What all brokers speak."""
    shared = set.intersection(*(set(versions) for versions in spoken))
    return {api: (0, min(versions[api][1] for versions in spoken)) for api in shared}
