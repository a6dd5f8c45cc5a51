"""Which checkpoints are written, and which group offsets follow from them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sparkmirror.formats.mirror import BY_TIME, Checkpoint
from sparkmirror.offsets.checkpoints import (
    CheckpointStore,
    Naming,
    is_more_recent,
    not_there_yet,
    offsets_to_sync,
    translated,
)
from sparkmirror.offsets.groups import GroupListing, GroupOffset
from sparkmirror.policy.filters import TopicFilter
from sparkmirror.policy.naming import DefaultReplicationPolicy, IdentityReplicationPolicy

NAMING = Naming(DefaultReplicationPolicy(), "A", "B")
ALL = TopicFilter([".*"], [])


class Known:
    """A translator that knows these offsets."""

    is_ready = True

    def __init__(self, known: Mapping[tuple[str, int, int], int]) -> None:
        self._known = known

    def follow(self, wait: float) -> None:
        raise AssertionError("nobody is to wait here")

    def translate(self, topic: str, partition: int, offset: int) -> int | None:
        return self._known.get((topic, partition, offset))


def checkpoint(upstream: int, downstream: int, group: str = "g", partition: int = 0) -> Checkpoint:
    return Checkpoint(group, "A.t", partition, upstream, downstream)


@pytest.mark.parametrize(
    ("topic", "downstream"),
    [("t", "A.t"), ("B.t", "t"), ("B.C.t", "t"), ("C.t", "A.C.t"), ("A.t", "A.A.t")],
)
def test_a_topic_that_came_from_the_target_goes_by_its_own_name(
    topic: str, downstream: str
) -> None:
    assert NAMING.downstream(topic) == downstream


def test_the_identity_policy_keeps_names() -> None:
    policy = IdentityReplicationPolicy()
    policy.configure({"source.cluster.alias": "A"})
    assert Naming(policy, "A", "B").downstream("t") == "t"


def test_what_can_be_translated_becomes_a_checkpoint() -> None:
    offsets = {
        ("t", 0): GroupOffset(10, "note"),
        ("t", 1): GroupOffset(11),  # too old
        ("t", 2): GroupOffset(12),  # nothing is known
        ("t", 3): None,  # reset by a client
        ("other", 0): GroupOffset(10),
    }
    known = Known({("t", 0, 10): 7, ("t", 1, 11): -1, ("other", 0, 10): 3})
    only_t = TopicFilter(["t"], []).matches
    found = list(translated("g", offsets, only_t, NAMING.downstream, known))
    assert found == [Checkpoint("g", "A.t", 0, 10, 7, "note")]
    assert len(list(translated("g", offsets, ALL.matches, NAMING.downstream, known))) == 2


@pytest.mark.parametrize(
    ("upstream", "downstream", "is_news"),
    [
        (10, 20, False),  # repeated
        (11, 20, False),  # the group moved on, its translation did not
        (11, 21, True),
        (10, 21, True),  # translated better
        (11, 19, False),  # would regress
        (10, 19, False),
        (9, 19, True),  # the group was rewound
        (9, 25, True),
    ],
)
def test_more_recent(upstream: int, downstream: int, is_news: bool) -> None:
    assert is_more_recent(checkpoint(upstream, downstream), checkpoint(10, 20)) is is_news
    assert is_more_recent(checkpoint(upstream, downstream), None)


def test_the_store_keeps_the_last_checkpoint_of_its_own_groups() -> None:
    store = CheckpointStore(["g", "h"])
    for known in (checkpoint(1, 1), checkpoint(5, 4), checkpoint(9, 9, group="stranger")):
        store.put(known)
    store.put(checkpoint(3, 3, group="h", partition=1))
    assert store.last("g", "A.t", 0) == checkpoint(5, 4)
    assert store.last("g", "A.t", 1) is None
    assert store.last("stranger", "A.t", 0) is None
    assert store.groups == ["g", "h"]
    assert store.downstream_offsets(["g", "h"]) == {
        "g": {("A.t", 0): GroupOffset(4)},
        "h": {("A.t", 1): GroupOffset(3)},
    }
    assert list(store.downstream_offsets(["h"])) == ["h"]


def test_groups_are_only_moved_forward() -> None:
    wanted = {("A.t", p): GroupOffset(10, "m") for p in range(5)}
    committed = {
        ("A.t", 0): GroupOffset(9),
        ("A.t", 1): GroupOffset(10),
        ("A.t", 2): GroupOffset(11),
        ("A.t", 3): None,
    }
    ends = {("A.t", p): 11 for p in range(5)}
    moves = offsets_to_sync(wanted, committed, ends)
    assert moves == {("A.t", p): GroupOffset(10, "m") for p in (0, 3, 4)}
    assert offsets_to_sync(wanted, {}, ends) == wanted
    assert list(not_there_yet(wanted, committed)) == [("A.t", p) for p in (0, 2, 3, 4)]


@pytest.mark.parametrize(
    ("committed", "end", "is_moved"),
    [
        (None, 10, True),
        (None, 9, False),  # beyond the end: the offset may be of a topic that was there before
        (5, 9, False),
        (5, None, False),  # the end is not known
        (11, 11, False),  # somebody may have read so far
        (11, 10, True),  # nobody can have read so far
        (11, 9, False),
        (11, None, False),
    ],
)
def test_groups_stay_within_the_log(committed: int | None, end: int | None, is_moved: bool) -> None:
    key, wanted = ("A.t", 0), GroupOffset(10)
    there = {} if committed is None else {key: GroupOffset(committed)}
    ends = {} if end is None else {key: end}
    assert offsets_to_sync({key: wanted}, there, ends) == ({key: wanted} if is_moved else {})


@pytest.mark.parametrize(
    ("protocol", "kind", "is_consumers"),
    [
        ("consumer", "Classic", True),
        ("", "Classic", True),
        ("consumer", "Consumer", True),
        ("consumer", "", True),  # a broker that tells no types
        ("connect", "Classic", False),
        ("share", "Share", False),
        ("streams", "Streams", False),
    ],
)
def test_groups_of_consumers(protocol: str, kind: str, is_consumers: bool) -> None:
    assert GroupListing("g", protocol, "Stable", kind).is_consumers is is_consumers


@pytest.mark.parametrize(("downstream", "is_news"), [(19, False), (20, True), (21, True)])
def test_an_exact_checkpoint_takes_the_place_of_one_by_time(downstream: int, is_news: bool) -> None:
    assert is_more_recent(checkpoint(10, downstream), checkpoint(BY_TIME, 20)) is is_news
    assert not is_more_recent(checkpoint(BY_TIME, 20), checkpoint(BY_TIME, 20))
