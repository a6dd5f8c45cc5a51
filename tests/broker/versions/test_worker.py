"""A Connect worker whose own cluster, with its configs, positions and statuses, is one of old brokers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_pair import ClusterPair
from connect_worker import ConnectWorker, worker_properties
from kafka_tools import topics, wait_for
from worker_flow import Flow, heartbeats

from sparkmirror.tools.jvm import KAFKA_VERSION


@pytest.mark.slow
def test_worker_on_the_old_cluster(
    pair: ClusterPair, unique: Callable[[str], str], tmp_path: Path
) -> None:
    old = pair.target if pair.source.version == KAFKA_VERSION else pair.source
    group = unique("worker")
    flow = Flow(pair.source, pair.target, unique("by-worker"))
    flow.produce(300)
    with ConnectWorker(tmp_path, worker_properties(old.bootstrap, group)) as worker:
        worker.wait_ready()
        assert worker.get("/")["kafka_cluster_id"] == old.cluster_id
        assert {f"{group}-configs", f"{group}-offsets", f"{group}-status"} <= topics(
            old.bootstrap
        ).keys()
        worker.put(flow.name, flow.config())
        worker.put("beats", heartbeats(flow))
        worker.wait_running(flow.name, 2)
        worker.wait_running("beats", 1)
        flow.await_copies()
        wait_for("heartbeats", lambda: "heartbeats" in topics(pair.target.bootstrap))
        worker.kill()
        flow.produce(100)
        with worker:
            worker.wait_ready()
            flow.check()
            worker.wait_running(flow.name, 2)
            assert worker.stop() == 0
