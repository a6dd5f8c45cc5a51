"""The cluster that the peer tests share: started once, when the first test asks for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kafka_tools import QUICK_JVM

from sparkmirror.tools.clusters import KafkaCluster


@pytest.fixture(scope="session")
def peer_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """One broker, for the storage topics of Java's workers and ours."""
    with KafkaCluster("peer", 1, tmp_path_factory.mktemp("peer"), jvm=QUICK_JVM) as cluster:
        yield cluster


@pytest.fixture
def group() -> str:
    """A worker group that no other test uses."""
    return f"group-{uuid.uuid4().hex[:8]}"
