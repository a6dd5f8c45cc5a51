"""Is a cluster there: what was seen of its addresses and brokers in, findings about reaching it and about its version out."""

from __future__ import annotations

from collections.abc import Iterable

from sparkmirror.errors import AccessFailed
from sparkmirror.preflight.facts import ClusterFacts, Reach, Versions
from sparkmirror.preflight.findings import Finding, error, failed, note, ok, some, warning

_REACH, _VERSION, _LOGIN = "reachability", "version", "authentication"

# API key, version: what a broker that lacks it does less well. Newest first.
_SINCE: tuple[tuple[int, int, str, str], ...] = (
    (1, 13, "3.1", "a topic that is deleted and created again under its name is noticed when the metadata is read next"),
    (2, 7, "3.0", "the newest time of records cannot be checked beforehand"),
    (61, 0, "2.8", "after a restart the target's log is read instead of asking for its last record"),
    (3, 10, "2.8", "topics have no ids: docs/versions.md says how one that is deleted and created again is noticed"),
    (22, 3, "2.5", "a leader that has forgotten a producer makes the copy begin a new numbering there"),
    (44, 0, "2.3", "topic configs cannot be kept in step (they need IncrementalAlterConfigs)"),
    (3, 8, "2.3", "brokers do not tell what is allowed, so ACLs cannot be checked beforehand"),
)  # fmt: skip
_FETCH, _PRODUCE = 1, 0
_LEAST_FETCH, _LEAST_PRODUCE = 11, 7


def cluster_findings(facts: ClusterFacts) -> list[Finding]:
    """All that can be said of a cluster by itself."""
    found = [*_bootstrap(facts), *_advertised(facts)]
    if facts.failure is not None:
        check = _LOGIN if isinstance(facts.failure, AccessFailed) else _REACH
        if not any(finding.message == facts.failure.message for finding in found):
            found.append(failed(check, facts.failure))
        return found
    found += _versions(facts)
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


def _versions(facts: ClusterFacts) -> Iterable[Finding]:
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
    lacks = [(since, what) for api, least, since, what in _SINCE if _most(common, api) < least]
    for since, what in lacks:
        yield note(_VERSION, f"A broker of {facts.alias} is older than Kafka {since}: {what}.")
    if not lacks:
        yield ok(_VERSION, f"The brokers of {facts.alias} speak all that is used.")


def _most(versions: Versions, api: int) -> int:
    return versions.get(api, (0, -1))[1]


def _common(spoken: list[Versions]) -> dict[int, tuple[int, int]]:
    """What all brokers speak."""
    shared = set.intersection(*(set(versions) for versions in spoken))
    return {api: (0, min(versions[api][1] for versions in spoken)) for api in shared}
