"""A cluster that shows only what a profile has, and an Apache cluster beside it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_proxy import Shown
from kafka_tools import QUICK_JVM
from shown_cluster import ShownCluster
from shown_flows import ShownFlows, Unique

from sparkmirror.tools.clusters import KafkaCluster


@pytest.fixture(scope="session")
def clusters(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ShownCluster, KafkaCluster]]:
    directory = tmp_path_factory.mktemp("profiles")
    with (
        ShownCluster("shown", 1, directory, Shown()) as shown,
        KafkaCluster("whole", 1, directory, jvm=QUICK_JVM) as whole,
    ):
        yield shown, whole


@pytest.fixture
def flows(
    clusters: tuple[ShownCluster, KafkaCluster], tmp_path: Path, unique: Unique
) -> Iterator[ShownFlows]:
    with ExitStack() as stack:
        found = ShownFlows(*clusters, tmp_path, unique, stack)
        yield found
        found.show(Shown())
