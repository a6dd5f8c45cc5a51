"""Is a cluster there, and can it do what is asked of it."""

from __future__ import annotations

import pytest

from sparkmirror.errors import AccessFailed, ConnectionFailed
from sparkmirror.kafka.api_versions import APIS
from sparkmirror.preflight.cluster_rules import cluster_findings
from sparkmirror.preflight.facts import ClusterFacts, Reach
from sparkmirror.preflight.findings import Level
from sparkmirror.preflight.privileges import Side

_NEW = {api.key: (0, api.most) for api in APIS.values()}
_BOTH: tuple[Side, ...] = ("source", "target")
_GONE = ConnectionFailed(
    "Broker b:1 of cluster A (b:1) cannot be reached: Connection refused.", "Do."
)


def _levels(facts: ClusterFacts) -> list[tuple[str, Level]]:
    return [(finding.check, finding.level) for finding in cluster_findings(facts, _BOTH)]


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
    found = [f for f in cluster_findings(facts, _BOTH) if f.check == "advertised-listener"]
    assert len(found) == 1
    assert "answers at b:1" in found[0].message
    assert "broker 3 tells clients to connect to x:9" in found[0].message
    assert "No such host." in found[0].message
    assert "advertised.listeners of broker 3" in found[0].remedy


def test_a_login_that_is_refused_is_told_once() -> None:
    refused = AccessFailed("The password is wrong.", "Correct it.")
    facts = ClusterFacts("A", (Reach("b", 1, refused),), failure=refused)
    assert _levels(facts) == [("authentication", Level.ERROR)]


# What brokers of some versions speak, of the APIs that tell them apart.
_OF_2_4 = _NEW | {0: (0, 8), 1: (0, 11), 2: (0, 5), 3: (0, 9), 22: (0, 2)}
del _OF_2_4[61]
_OF_2_8 = _OF_2_4 | {0: (0, 9), 1: (0, 12), 2: (0, 6), 3: (0, 11), 22: (0, 4), 61: (0, 0)}
_OF_3_9 = _OF_2_8 | {0: (0, 11), 1: (0, 17), 2: (0, 9), 3: (0, 12), 22: (0, 5)}


def _notes(versions: dict[int, tuple[int, int]], *sides: Side) -> list[str]:
    brokers = (Reach("b", 1, None, versions, 1), Reach("c", 1, None, _NEW, 2))
    facts = ClusterFacts("A", (Reach("b", 1, None, versions),), brokers, "id")
    found = cluster_findings(facts, sides)
    return [f.message for f in found if f.level in (Level.NOTE, Level.WARNING)]


def test_a_source_without_topic_ids_says_how_a_topic_created_again_is_noticed_and_when_not() -> (
    None
):
    (no_times, line) = _notes(_OF_2_4, "source")
    assert "the newest time of records" in no_times
    assert line.startswith("A offers Metadata up to version 9: topics have no ids.")
    assert "is noticed at a start or an error: by the checksum of the last copied batch" in line
    assert "a log that ends before that batch" in line
    assert "It may not be noticed where" in line
    assert "mirror.recreated.target" not in line


def test_a_target_without_topic_ids_says_that_the_setting_has_no_effect() -> None:
    line, producers, tail = _notes(_OF_2_4, "target")
    assert "A does not offer DescribeProducers: after a restart the target's log is read" in tail
    assert "version 9: topics have no ids. mirror.recreated.target has no effect" in line
    assert "is filled again" in line
    assert "InitProducerId up to version 2: a leader that has forgotten a producer" in producers


def test_a_cluster_that_is_both_says_both() -> None:
    told = " ".join(_notes(_OF_2_4, "source", "target"))
    assert "checksum" in told
    assert "mirror.recreated.target" in told


def test_a_cluster_for_the_workers_topics_says_nothing_of_copied_topics() -> None:
    assert _notes(_OF_2_4, "worker") == []


@pytest.mark.parametrize(
    ("versions", "side", "offered", "expected"),
    [
        (_OF_2_8, "source", "Fetch up to version 12", "a source topic that is deleted"),
        (_OF_2_8, "target", "Produce up to version 9", "a remote topic that is deleted"),
        (_OF_3_9, "target", "Produce up to version 11", "a remote topic that is deleted"),
    ],
)
def test_brokers_with_topic_ids_in_the_metadata_alone(
    versions: dict[int, tuple[int, int]], side: Side, offered: str, expected: str
) -> None:
    told = [line for line in _notes(versions, side) if "created again" in line]
    assert len(told) == 1
    noticed = "and created again is noticed when the metadata is read next"
    assert f"A offers {offered}: {expected} {noticed}" in told[0]
    assert "topics have no ids" not in told[0]


def test_a_source_on_3_9_lacks_nothing() -> None:
    assert _notes(_OF_3_9, "source") == []


def test_what_nothing_can_be_copied_without_is_an_error() -> None:
    ancient = {**_NEW, 1: (0, 3)}
    facts = ClusterFacts("A", (Reach("b", 1, None, ancient),), (Reach("b", 1, None, ancient, 1),))
    (found,) = [f for f in cluster_findings(facts, ["source"]) if f.level is Level.ERROR]
    assert found.message.startswith("A offers Fetch in versions 0 to 3, and we speak 4 to 13")


def test_an_optional_api_that_is_missing_is_a_warning() -> None:
    event_hubs = {key: found for key, found in _NEW.items() if key not in (23, 29, 44)}
    facts = ClusterFacts("A", (Reach("b", 1, None, _NEW),), (Reach("b", 1, None, event_hubs, 1),))
    told = [f.message for f in cluster_findings(facts, _BOTH) if f.level is Level.WARNING]
    assert [text.partition(":")[0] for text in told] == [
        "A does not offer OffsetForLeaderEpoch",
        "A does not offer DescribeAcls",
        "A does not offer IncrementalAlterConfigs",
    ]
