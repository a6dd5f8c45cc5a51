"""Consumer groups that go over to the other cluster and come back: nothing lost or repeated, nobody moved who must not be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from cluster_pair import ClusterPair
from confluent_kafka.admin import AdminClient
from flow_records import group_member
from kafka_tools import PATIENCE_S, commit_group, consume, group_offsets, topics, wait_for
from numbered import NumberedTopic, Standing, Stream, await_copies
from running import Mirror
from traveller import Traveller

from sparkmirror.formats.mirror import Checkpoint, decode_checkpoint

Unique = Callable[[str], str]
Place = tuple[str, int]


class Sites(NamedTuple):
    """Two clusters that mirror each other, under these aliases."""

    here: str
    """The bootstrap address of the one, `here`."""
    there: str


@pytest.fixture(scope="module")
def sites(cluster_pair: ClusterPair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    """Active/active, in one process, with all intervals short."""
    keys = {
        "clusters": "here, there",
        "here.bootstrap.servers": cluster_pair.source.bootstrap,
        "there.bootstrap.servers": cluster_pair.target.bootstrap,
        "here->there.enabled": "true",
        "there->here.enabled": "true",
        "replication.factor": "1",
        "topics": r"(here\\.|there\\.)?failover-.*",
        "groups": "failover-.*",
        "emit.heartbeats.enabled": "false",
        "heartbeats.replication.enabled": "false",
        "refresh.topics.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
    }
    mirror = Mirror(tmp_path_factory.mktemp("failover"), keys)
    with mirror:
        yield Sites(cluster_pair.source.bootstrap, cluster_pair.target.bootstrap)
        assert mirror.stop() == 0
    assert "Traceback" not in mirror.output


def await_standing(bootstrap: str, group: str, expected: dict[Stream, int], *names: str) -> None:
    """Until a group would go on with exactly these records."""
    standing = Standing(bootstrap, *names)
    wait_for(
        f"{group} stands at {expected}, not {standing.of(group)}",
        lambda: standing.of(group) == expected,
    )


def checkpoints(bootstrap: str, alias: str, group: str) -> list[Checkpoint]:
    """What the flow out of `alias` has written of a group, from the first to the last."""
    topic = f"{alias}.checkpoints.internal"
    if topic not in topics(bootstrap):
        return []
    rows = (decode_checkpoint(row.key, row.value) for row in consume(bootstrap, topic))
    return [row for row in rows if row.group == group]


def await_offsets(bootstrap: str, group: str, expected: dict[Place, int]) -> None:
    wait_for(
        f"{group} is at {expected}, not {group_offsets(bootstrap, group)}",
        lambda: group_offsets(bootstrap, group) == expected,
    )


# -- over and back ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_over_and_back(sites: Sites, unique: Unique, protocol: str) -> None:
    """A topic of one cluster, read there, then as its copy, then there again."""
    topic = NumberedTopic(sites.here, unique("failover-t"), "here")
    remote = f"here.{topic.topic}"
    traveller = Traveller(unique("failover-g"), protocol)
    topic.mixed(4)
    traveller.visit(sites.here, [topic.topic], 33)
    await_copies(sites.there, remote, topic.total)
    await_standing(sites.there, traveller.group, traveller.read, remote)

    topic.mixed(2)
    traveller.visit(sites.there, [remote], 44)
    await_standing(sites.here, traveller.group, traveller.read, topic.topic)

    traveller.visit(sites.here, [topic.topic], 17)
    await_standing(sites.there, traveller.group, traveller.read, remote)
    topic.aborted(3)
    topic.mixed(1)
    await_copies(sites.there, remote, topic.total)
    left = topic.total - len(traveller.log)
    traveller.visit(sites.there, [remote], left)
    await_standing(sites.here, traveller.group, traveller.read, topic.topic)
    topic.mixed(1)
    traveller.visit(sites.here, [topic.topic], topic.total - len(traveller.log))
    traveller.assert_complete(topic.counts)


@pytest.mark.slow
def test_active_active(sites: Sites, unique: Unique) -> None:
    """Both clusters are written, and on each the group reads the topic and the copy of the other's."""
    name, group = unique("failover-both"), unique("failover-g")
    here = NumberedTopic(sites.here, name, "here")
    there = NumberedTopic(sites.there, name, "there")
    on_here, on_there = (name, f"there.{name}"), (name, f"here.{name}")
    traveller = Traveller(group)

    def counts() -> Counter[Stream]:
        return here.counts + there.counts

    def copied() -> None:
        await_copies(sites.there, on_there[1], here.total)
        await_copies(sites.here, on_here[1], there.total)

    here.mixed(3)
    there.mixed(3)
    copied()
    # Some of every stream, so that each has an offset that can be translated.
    traveller.visit(sites.here, on_here, lambda: len(traveller.read) == 4)
    for number in range(4):
        bootstrap, names = (sites.there, on_there) if number % 2 == 0 else (sites.here, on_here)
        await_standing(bootstrap, group, traveller.read, *names)
        here.mixed(1)
        there.mixed(1)
        traveller.visit(bootstrap, names, 15)
        copied()
    await_standing(sites.there, group, traveller.read, *on_there)
    traveller.visit(sites.there, on_there, counts().total() - len(traveller.log))
    traveller.assert_complete(counts())


# -- who is moved, and who is not ---------------------------------------------------------------------


class Copied(NamedTuple):
    """A topic with plain records, so that offsets are the same on both sides."""

    topic: str
    remote: str


@pytest.fixture
def copied(sites: Sites, unique: Unique) -> Copied:
    topic = NumberedTopic(sites.here, unique("failover-t"), "here", 1)
    topic.plain(100)
    remote = f"here.{topic.topic}"
    await_copies(sites.there, remote, 100)
    return Copied(topic.topic, remote)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_members_is_not_moved(
    sites: Sites, copied: Copied, unique: Unique, protocol: str
) -> None:
    busy, witness = unique("failover-busy"), unique("failover-witness")
    commit_group(sites.there, busy, copied.remote, {0: 3})
    with group_member(sites.there, busy, copied.remote, protocol):
        commit_group(sites.here, busy, copied.topic, {0: 50})
        wait_for("it has a checkpoint", lambda: checkpoints(sites.there, "here", busy))
        for offset in (20, 40):  # rounds in which others are moved
            commit_group(sites.here, witness, copied.topic, {0: offset})
            await_offsets(sites.there, witness, {(copied.remote, 0): offset})
        assert group_offsets(sites.there, busy) == {(copied.remote, 0): 3}
    await_offsets(sites.there, busy, {(copied.remote, 0): 50})


def both_ways(sites: Sites, copied: Copied, unique: Unique) -> None:
    """Two rounds in each direction, in which other groups are moved."""
    group = unique("failover-witness")
    for offset in (20, 40):
        commit_group(sites.here, group, copied.topic, {0: offset})
        await_offsets(sites.there, group, {(copied.remote, 0): offset})
        commit_group(sites.there, group, copied.remote, {0: offset + 10})
        await_offsets(sites.here, group, {(copied.topic, 0): offset + 10})


@pytest.mark.slow
def test_a_rewound_group_gets_a_lower_checkpoint_and_is_not_moved_back(
    sites: Sites, copied: Copied, unique: Unique
) -> None:
    group = unique("failover-g")
    commit_group(sites.here, group, copied.topic, {0: 60})
    await_offsets(sites.there, group, {(copied.remote, 0): 60})
    commit_group(sites.here, group, copied.topic, {0: 10})

    def last() -> tuple[int, int]:
        checkpoint = checkpoints(sites.there, "here", group)[-1]
        return checkpoint.upstream_offset, checkpoint.downstream_offset

    wait_for("a lower checkpoint", lambda: last() == (10, 10))
    both_ways(sites, copied, unique)
    assert group_offsets(sites.there, group) == {(copied.remote, 0): 60}
    # And what it was moved to there is nothing that it has read there.
    assert group_offsets(sites.here, group) == {(copied.topic, 0): 10}


@pytest.mark.slow
def test_a_group_that_is_deleted_stays_on_the_target(
    sites: Sites, copied: Copied, unique: Unique
) -> None:
    group = unique("failover-g")
    commit_group(sites.here, group, copied.topic, {0: 30})
    await_offsets(sites.there, group, {(copied.remote, 0): 30})
    admin = AdminClient({"bootstrap.servers": sites.here})
    admin.delete_consumer_groups([group])[group].result(PATIENCE_S)
    both_ways(sites, copied, unique)
    assert group_offsets(sites.there, group) == {(copied.remote, 0): 30}
    assert group_offsets(sites.here, group) == {}
