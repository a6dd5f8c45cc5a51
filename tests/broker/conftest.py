"""Clusters that the broker tests share: started once, when the first test asks for them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator

import pytest
from cluster_pair import ClusterPair, running_pair
from hosts import Network
from kafka_tools import QUICK_JVM
from spark_site import FAR_S, NODES

from sparkmirror.tools.clusters import KafkaCluster


@pytest.fixture(scope="session")
def cluster_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterPair]:
    """Two clusters of one broker each."""
    yield from running_pair(1, tmp_path_factory.mktemp("one-broker"))


@pytest.fixture(scope="session")
def source_cluster(cluster_pair: ClusterPair) -> KafkaCluster:
    """The source, one broker."""
    return cluster_pair.source


@pytest.fixture(scope="session")
def target_cluster(cluster_pair: ClusterPair) -> KafkaCluster:
    """The target, one broker."""
    return cluster_pair.target


@pytest.fixture(scope="session")
def three_broker_source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A source of three brokers; a test that ends one must start it again."""
    with KafkaCluster(
        "source", 3, tmp_path_factory.mktemp("three-brokers"), jvm=QUICK_JVM
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def three_broker_target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A target of three brokers; a test that ends one must start it again."""
    with KafkaCluster(
        "target", 3, tmp_path_factory.mktemp("three-brokers"), jvm=QUICK_JVM
    ) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    """Hosts for a Spark cluster; what a test does itself it does on the driver's."""
    names, delays = ("source", "target", "driver", *NODES), {"far": FAR_S}
    with Network(*names, delays=delays) as made, made["driver"].inside():
        yield made


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names that no other test uses, and that tell which test made them."""
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:60]

    def name(prefix: str) -> str:
        return f"{prefix}-{test}-{uuid.uuid4().hex[:8]}"

    return name
