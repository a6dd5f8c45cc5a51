"""Ten thousand consumer groups through a worker as a user starts it: how long, how much memory, how many requests."""

from __future__ import annotations

import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from cluster_pair import ClusterPair, running_pair
from connect_worker import ConnectWorker, worker_properties
from kafka_tools import NewRecord, create_topic, produce, topics, wait_for
from thread_tasks import checkpoints

from sparkmirror.formats.mirror import OffsetSync, encode_offset_sync
from sparkmirror.formats.offset_map import Place, Run, TopicIds, encode
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings
from sparkmirror.offsets.groups import GroupOffset, Groups
from sparkmirror.offsets.internal_topic import InternalTopic
from sparkmirror.offsets.segments import of_runs

GROUPS = 10_000
PARTITIONS = 10
CHECKPOINTS = GROUPS * PARTITIONS
MOST_SECONDS = 20.0
MOST_MEGABYTES = 300
TOPIC, REMOTE = "orders", "A.orders"
CHECKPOINTS_TOPIC = "A.checkpoints.internal"
NAMES = [f"group-{number}" for number in range(GROUPS)]
# The source's log: so many records, then a marker of a transaction, and again.
RUN, RUNS = 100, 50
INTERVAL_S = 5
BULKS = GROUPS / 250  # requests that ask for groups in bulk
PARTS = GROUPS // 2000
COMMIT, LIST = "OffsetCommitRequest", "ListGroupsRequest"
Positions = dict[str, dict[tuple[str, int], GroupOffset]]


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[ClusterPair]:
    """Clusters of its own: so many groups would be in the way of other tests."""
    yield from running_pair(1, tmp_path)


class CountedWorker(ConnectWorker):
    """A worker whose requests are counted."""

    def __init__(self, directory: Path, bootstrap: str) -> None:
        super().__init__(directory, worker_properties(bootstrap, "many"))
        self._counts = self.home / "requests.json"
        program = Path(__file__).with_name("counted.py")
        self._command = [sys.executable, str(program), str(self._counts), *self._command[3:]]

    def requests(self) -> Counter[str]:
        """How many of each kind it has sent so far."""
        return Counter(json.loads(self._counts.read_text(encoding="ascii"))["requests"])

    def first_request(self, client_id: str) -> float:
        """When a client of it asked something for the first time."""
        return float(json.loads(self._counts.read_text(encoding="ascii"))["firsts"][client_id])

    def peak_megabytes(self) -> float:
        """The most memory that it has ever used, without Spark's processes, which copy no records here."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1024


def prepare(clusters: ClusterPair) -> Positions:
    """Topics, the offset map and the groups' positions, as a flow that has long been running leaves them."""
    source, target = (cluster.bootstrap for cluster in clusters)
    create_topic(source, TOPIC, PARTITIONS)
    create_topic(target, REMOTE, PARTITIONS)
    compacted = {"cleanup.policy": "compact"}
    create_topic(source, "mm2-offset-syncs.B.internal", configs=compacted)
    create_topic(target, "mm2-offset-map.A.internal", configs=compacted)
    partitions = range(PARTITIONS)
    produce(
        target, REMOTE, (NewRecord(None, b"x", p) for p in partitions for _ in range(RUN * RUNS))
    )
    syncs = [encode_offset_sync(OffsetSync(TOPIC, p, 0, 0)) for p in partitions]
    produce(source, "mm2-offset-syncs.B.internal", [NewRecord(k, v, 0) for k, v in syncs])
    runs = [Run((RUN + 1) * number, RUN * number, RUN) for number in range(RUNS)]
    places = [Place(TOPIC, p, REMOTE, p) for p in partitions]
    rows = [encode(of_runs(place, TopicIds(), runs)) for place in places]
    produce(target, "mm2-offset-map.A.internal", [NewRecord(k, v, 0) for k, v in rows])
    return commit(source)


def commit(bootstrap: str) -> Positions:
    """Every group somewhere in every partition."""
    draw = random.Random(10_000)
    last = (RUN + 1) * RUNS - 1
    positions: Positions = {
        name: {(TOPIC, p): GroupOffset(draw.randrange(last)) for p in range(PARTITIONS)}
        for name in NAMES
    }
    cluster = Cluster(client_settings("A", {"bootstrap.servers": bootstrap}))
    try:
        left = dict(positions)

        def all_done() -> bool:
            for name in Groups(cluster).commit(left).found:
                del left[name]
            return not left

        wait_for("all groups have committed", all_done, 120)
    finally:
        cluster.close()
    return positions


def translated(offset: int) -> int:
    """What the source's log says: markers have no copy."""
    run, within = divmod(offset, RUN + 1)
    return RUN * run + within


def connector(clusters: ClusterPair) -> dict[str, str]:
    return {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorCheckpointConnector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": clusters.source.bootstrap,
        "target.cluster.bootstrap.servers": clusters.target.bootstrap,
        "topics": TOPIC,
        "groups": "group-.*",
        "tasks.max": "1",
        "checkpoints.topic.replication.factor": "1",
        "emit.checkpoints.interval.seconds": str(INTERVAL_S),
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": str(INTERVAL_S),
    }


def await_checkpoints(bootstrap: str, cluster: Cluster) -> None:
    """Until as many as there are to come are in their topic; asked with little effort, since this machine is being measured."""
    wait_for("the checkpoints topic", lambda: CHECKPOINTS_TOPIC in topics(bootstrap), 120)
    topic = InternalTopic(cluster, CHECKPOINTS_TOPIC)
    wait_for("all checkpoints", lambda: topic.end() >= CHECKPOINTS, 120)


def moved(groups: Groups) -> dict[str, dict[tuple[str, int], int]]:
    """Where the groups are on the target."""
    answers = groups.committed(NAMES)
    assert not answers.failed
    return {
        name: {key: known.offset for key, known in offsets.items() if known is not None}
        for name, offsets in answers.found.items()
    }


def check_checkpoints(target: str, positions: Positions) -> None:
    """One of each group and partition, and each is exact."""
    found = checkpoints(target, CHECKPOINTS_TOPIC)
    wanted = {
        (name, REMOTE, partition, offset.offset, translated(offset.offset))
        for name, offsets in positions.items()
        for (_, partition), offset in offsets.items()
    }
    assert len(found) == CHECKPOINTS
    assert wanted == {
        (c.group, c.topic, c.partition, c.upstream_offset, c.downstream_offset) for c in found
    }


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_groups(
    clusters: ClusterPair,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    target = clusters.target.bootstrap
    positions = prepare(clusters)
    wanted = {
        name: {(REMOTE, p): translated(at.offset) for (_, p), at in offsets.items()}
        for name, offsets in positions.items()
    }
    there = Cluster(client_settings("B", {"bootstrap.servers": target}))
    with closing(there), CountedWorker(tmp_path, target) as worker:
        worker.wait_ready()
        idle = worker.peak_megabytes()
        began = time.monotonic()
        worker.put("many", connector(clusters))
        await_checkpoints(target, there)
        done = time.monotonic()
        # The task's own client for groups on the source: its first question begins the first round.
        seconds = done - worker.first_request("A->B|many-0|checkpoint-source-admin")
        peak = worker.peak_megabytes()
        wait_for("all commits", lambda: worker.requests()[COMMIT] >= GROUPS, 120)
        wait_for("all groups are moved", lambda: moved(Groups(there)) == wanted, 120)
        synced = time.monotonic() - began
        first = worker.requests()
        # Groups are moved in parts, each of which begins with a listing.
        parts = 2 * PARTS
        wait_for("two more rounds", lambda: worker.requests()[LIST] >= first[LIST] + parts, 120)
        elapsed = time.monotonic() - began
        last = worker.requests()
        peak_later = worker.peak_megabytes()
    with capsys.disabled():
        say = pytestconfig.get_terminal_writer().line
        say(
            f"\n{CHECKPOINTS} checkpoints in {seconds:.1f} s, {done - began:.1f} s after their "
            "connector was created"
        )
        say(f"all groups moved after {synced:.1f} s; requests: {dict(last)}")
        say(f"memory: {idle:.0f} MB, {peak:.0f} MB with checkpoints, {peak_later:.0f} MB at most")
    check_checkpoints(target, positions)
    assert seconds < MOST_SECONDS
    assert peak_later < MOST_MEGABYTES
    check_requests(last, elapsed)


def check_requests(sent: Counter[str], seconds: float) -> None:
    """Commits are one for each group, by the protocol, and only where something is to do; all else is asked in bulk."""
    assert sent[COMMIT] == GROUPS
    assert sent["FindCoordinatorRequest"] <= 4 * BULKS
    looks = (
        seconds / INTERVAL_S + 2
    )  # at all groups of the source: the connector's, and then at intervals
    assert sent["OffsetFetchRequest"] <= BULKS * (looks + sent[LIST] / PARTS + 1)
