"""Is a cluster there: what was seen of its addresses and brokers in, findings about reaching it and what it offers out."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from sparkmirror.errors import AccessFailed
from sparkmirror.kafka.api_versions import Side, Versions, common, losses, missing
from sparkmirror.preflight.facts import ClusterFacts, Reach
from sparkmirror.preflight.findings import Finding, error, failed, note, ok, some, warning

_REACH, _VERSION, _LOGIN = "reachability", "version", "authentication"


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
    offered = offered_by(facts)
    if offered is None:
        return
    absent = missing(offered, sides)
    for api in absent:
        yield error(
            _VERSION, f"{facts.alias} {api.is_offered(offered)}: nothing can be copied without it."
        )
    if absent:
        return
    found = list(losses(offered, sides))
    for lost in found:
        level = warning if lost.is_missing else note
        yield level(_VERSION, f"{facts.alias} {lost.api.is_offered(offered)}: {lost.lack.what}.")
    if not found:
        yield ok(_VERSION, f"The brokers of {facts.alias} offer all that is used.")


def offered_by(facts: ClusterFacts) -> Versions | None:
    """What all brokers of a cluster offer; None if none could be asked."""
    spoken = [broker.versions for broker in facts.brokers if broker.failure is None]
    return common(spoken) if spoken else None
