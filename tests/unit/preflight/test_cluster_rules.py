"""Is a cluster there, and can it do what is asked of it."""

from __future__ import annotations

from sparkmirror.errors import AccessFailed, ConnectionFailed
from sparkmirror.preflight.cluster_rules import cluster_findings
from sparkmirror.preflight.facts import ClusterFacts, Reach
from sparkmirror.preflight.findings import Level

_NEW = {0: (3, 13), 1: (4, 17), 2: (1, 10), 3: (0, 13), 22: (0, 5), 44: (0, 1), 61: (0, 0)}
_GONE = ConnectionFailed(
    "Broker b:1 of cluster A (b:1) cannot be reached: Connection refused.", "Do."
)


def _levels(facts: ClusterFacts) -> list[tuple[str, Level]]:
    return [(finding.check, finding.level) for finding in cluster_findings(facts)]


def test_all_is_well() -> None:
    facts = ClusterFacts("A", (Reach("b", 1, None, _NEW),), (Reach("b", 1, None, _NEW, 1),), "id")
    assert _levels(facts) == [("reachability", Level.OK), ("version", Level.OK)]


def test_nobody_answers() -> None:
    facts = ClusterFacts("A", (Reach("b", 1, _GONE),), failure=_GONE)
    assert _levels(facts) == [("reachability", Level.ERROR)]


def test_one_of_two_answers() -> None:
    facts = ClusterFacts(
        "A",
        (Reach("b", 1, _GONE), Reach("c", 1, None, _NEW)),
        (Reach("c", 1, None, _NEW, 1),),
        "id",
    )
    assert ("reachability", Level.WARNING) in _levels(facts)


def test_a_wrong_advertised_listener_names_both_addresses() -> None:
    lost = ConnectionFailed("Broker x:9 of cluster A (b:1) cannot be reached: No such host.", "")
    facts = ClusterFacts(
        "A", (Reach("b", 1, None, _NEW),), (Reach("x", 9, lost, {}, 3),), "id", failure=lost
    )
    found = [f for f in cluster_findings(facts) if f.check == "advertised-listener"]
    assert len(found) == 1
    assert "answers at b:1" in found[0].message
    assert "broker 3 tells clients to connect to x:9" in found[0].message
    assert "No such host." in found[0].message
    assert "advertised.listeners of broker 3" in found[0].remedy


def test_a_login_that_is_refused_is_told_once() -> None:
    refused = AccessFailed("The password is wrong.", "Correct it.")
    facts = ClusterFacts("A", (Reach("b", 1, refused),), failure=refused)
    assert _levels(facts) == [("authentication", Level.ERROR)]


def test_old_brokers() -> None:
    old = {**_NEW, 1: (4, 11), 44: (0, -1)}
    del old[61]
    facts = ClusterFacts(
        "A",
        (Reach("b", 1, None, old),),
        (Reach("b", 1, None, old, 1), Reach("c", 1, None, _NEW, 2)),
        "id",
    )
    told = " ".join(f.message for f in cluster_findings(facts) if f.level is Level.NOTE)
    assert "older than Kafka 3.1" in told
    assert "older than Kafka 2.8: after a restart" in told
    assert "topics have no ids" not in told
    older = {**old, 3: (0, 9), 22: (0, 2)}  # as 2.4 has them
    facts = ClusterFacts("A", (Reach("b", 1, None, older),), (Reach("b", 1, None, older, 1),), "id")
    told = " ".join(f.message for f in cluster_findings(facts) if f.level is Level.NOTE)
    assert "older than Kafka 2.8: topics have no ids" in told
    assert "older than Kafka 2.5: a leader that has forgotten a producer" in told
    ancient = {**_NEW, 1: (4, 10)}
    facts = ClusterFacts("A", (Reach("b", 1, None, ancient),), (Reach("b", 1, None, ancient, 1),))
    assert ("version", Level.ERROR) in _levels(facts)
