"""A YARN queue that is full: the application waits for its turn, and is neither given up nor submitted again."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from cluster_pair import ClusterPair, running_pair
from kafka_tools import wait_for
from program import Program
from running import Mirror
from spread import SpreadTopic, keys
from yarn_cluster import Application, YarnCluster

pytestmark = pytest.mark.slow
Unique = Callable[[str], str]
FULL_S = 90.0
PATIENCE_S = 600.0


def ours(yarn: YarnCluster) -> list[Application]:
    return [app for app in yarn.applications() if app.name == "queued"]


def waits_told(mirror: Program) -> list[int]:
    """The seconds that the log says it has waited for."""
    return [int(said) for said in re.findall(r"Waiting for yarn .* for (\d+) s", mirror.output)]


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[ClusterPair]:
    """Without connectors that other tests left: one with a query would have Spark started again for queries."""
    yield from running_pair(1, tmp_path)


def test_a_queue_that_is_full_for_90_s_is_waited_for(
    clusters: ClusterPair, unique: Unique, tmp_path: Path
) -> None:
    topic = SpreadTopic(clusters.source, clusters.target, unique("queued"), 2)
    with YarnCluster(tmp_path / "yarn") as yarn:
        holder = yarn.fill("mirrors")
        wanted = keys(topic, "yarn", 2) | yarn.settings
        wanted |= {"spark.app.name": "queued", "spark.yarn.queue": "mirrors"}
        mirror = Mirror(tmp_path, wanted, environment=os.environ | yarn.variables)
        with mirror:
            topic.add()
            wait_for("it is queued", lambda: ours(yarn) or None, PATIENCE_S)
            (queued,) = ours(yarn)
            until = time.monotonic() + FULL_S
            jvms = {each.pid for each in mirror.jvms()}
            while time.monotonic() < until:  # the test is of this time
                assert [app.state for app in ours(yarn)] == ["ACCEPTED"]
                time.sleep(3)
            assert topic.copied() == 0
            assert {each.pid for each in mirror.jvms()} == jvms
            told = waits_told(mirror)
            assert len(told) >= 3
            assert all(30 <= b - a <= 40 for a, b in pairwise(told))
            yarn.end(holder)
            topic.arrives(PATIENCE_S)
            (running,) = ours(yarn)
            assert (running.id, running.state) == (queued.id, "RUNNING")
            topic.add()
            topic.arrives(PATIENCE_S)
            topic.assert_same()
        wait_for("its place is given back", lambda: ours(yarn)[0].state == "FINISHED", PATIENCE_S)
