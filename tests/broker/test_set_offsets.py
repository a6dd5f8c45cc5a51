"""Positions that are set back and forward through REST: no group is led past a record that it has not read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_pair import ClusterPair
from connect_worker import ConnectWorker, connector_path, worker_properties
from kafka_tools import (
    NewRecord,
    commit_group,
    consume,
    create_topic,
    end_offsets,
    group_offsets,
    produce,
    set_topic_configs,
    topics,
    wait_for,
)
from worker_flow import MIRROR

Unique = Callable[[str], str]
LARGE = 20_000


class SetFlow:
    """A topic of one partition with its copy, and the source and checkpoint connectors of a flow of its own."""

    def __init__(self, clusters: ClusterPair, worker: ConnectWorker, mark: str) -> None:
        self.source, self.target = clusters.source.bootstrap, clusters.target.bootstrap
        self.worker = worker
        self.alias, self.topic, self.mark = f"A{mark}", f"orders-{mark}", mark
        self.remote = f"{self.alias}.{self.topic}"
        self.copies, self.checkpoints = f"copies-{mark}", f"checkpoints-{mark}"
        create_topic(self.source, self.topic)

    def config(self, connector: str, **keys: str) -> dict[str, str]:
        return {
            "connector.class": f"{MIRROR}.{connector}",
            "source.cluster.alias": self.alias,
            "target.cluster.alias": f"B{self.mark}",
            "source.cluster.bootstrap.servers": self.source,
            "target.cluster.bootstrap.servers": self.target,
            "topics": self.topic,
            "groups": f"g.*-{self.mark}",
            **{key.replace("_", "."): value for key, value in keys.items()},
        }

    def start(self) -> None:
        self.worker.put(
            self.copies,
            self.config(
                "MirrorSourceConnector",
                sync_topic_configs_enabled="false",
                heartbeats_replication_enabled="false",
            ),
        )
        self.worker.put(
            self.checkpoints,
            self.config(
                "MirrorCheckpointConnector",
                emit_checkpoints_interval_seconds="1",
                refresh_groups_interval_seconds="1",
                sync_group_offsets_enabled="true",
                sync_group_offsets_interval_seconds="1",
            ),
        )

    def produce(self, numbers: range, value: bytes = b"") -> None:
        produce(self.source, self.topic, [NewRecord(b"%d" % n, value) for n in numbers])

    def await_copies(self, count: int) -> None:
        def copied() -> bool:
            known = self.remote in topics(self.target)
            return known and end_offsets(self.target, self.remote)[0] == count

        wait_for(f"{self.remote} has {count} record(s)", copied)

    def stop(self) -> None:
        self.worker.tell(self.copies, "stop")
        self.worker.wait_states(self.copies, "STOPPED", [])

    def set_next(self, offset: int) -> None:
        """Stop, set the position so that this is the next offset to copy, and resume."""
        self.stop()
        position = {
            "partition": {"cluster": self.alias, "topic": self.topic, "partition": 0},
            "offset": {"offset": offset - 1},
        }
        path = f"{connector_path(self.copies)}/offsets"
        assert self.worker.request("PATCH", path, {"offsets": [position]}).status == 200
        self.worker.tell(self.copies, "resume")

    def limit(self, size: int) -> None:
        set_topic_configs(self.target, self.remote, {"max.message.bytes": str(size)})

    def group(self, offset: int) -> str:
        return f"g{offset}-{self.mark}"

    def moved(self, offsets: list[int]) -> dict[int, int]:
        """Where the groups are on the target."""
        found = {
            offset: group_offsets(self.target, self.group(offset)).get((self.remote, 0))
            for offset in offsets
        }
        return {offset: there for offset, there in found.items() if there is not None}


@pytest.fixture
def flow(cluster_pair: ClusterPair, tmp_path: Path, unique: Unique) -> Iterator[SetFlow]:
    keys = worker_properties(cluster_pair.target.bootstrap, unique("w"))
    with ConnectWorker(tmp_path, keys) as worker:
        worker.wait_ready()
        yield SetFlow(cluster_pair, worker, unique("m"))


@pytest.mark.slow
def test_a_position_set_back_and_forward_loses_no_group_a_record(flow: SetFlow) -> None:
    flow.produce(range(100))
    flow.produce(range(100, 110))
    flow.produce(range(110, 200), bytes(LARGE))
    flow.start()
    flow.await_copies(200)
    flow.limit(LARGE // 2)  # so that nothing from 110 on is copied again
    flow.set_next(100)
    flow.await_copies(210)
    flow.stop()  # else what was too large is tried again before the position is set
    flow.limit(10 * LARGE)
    flow.produce(range(200, 250))
    flow.set_next(200)
    flow.await_copies(260)
    log = [int(row.key or b"") for row in consume(flow.target, flow.remote)]
    assert log == [*range(200), *range(100, 110), *range(200, 250)]

    wanted = {50: 50, 99: 99, 100: 110, 105: 110, 110: 110, 150: 150, 199: 199}
    wanted |= {200: 210, 220: 230, 250: 260}
    for offset in wanted:
        commit_group(flow.source, flow.group(offset), flow.topic, {0: offset})
    wait_for("all groups are moved", lambda: len(flow.moved([*wanted])) == len(wanted))
    for offset, there in flow.moved([*wanted]).items():
        assert set(log[there:]) >= set(range(offset, 250)), f"at {offset}: records are passed over"
    wait_for("all are moved exactly", lambda: flow.moved([*wanted]) == wanted)
