"""Brokers of other makes: where MirrorMaker 2 copies from or to them, so do we, with the same file."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from broker_profiles import PROFILES
from broker_proxy import Shown
from kafka_tools import QUICK_JVM, NewRecord, create_topic, end_offsets, produce, topics
from program import Program
from running import Mirror
from shown_cluster import ShownCluster
from test_metadata_beside_mm2 import flow, mirror_maker

from sparkmirror.tools.clusters import KafkaCluster

COUNT = 300
_PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def clusters(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[ShownCluster, KafkaCluster]]:
    directory = tmp_path_factory.mktemp("profiles")
    with (
        ShownCluster("shown", 1, directory, Shown()) as shown,
        KafkaCluster("whole", 1, directory, jvm=QUICK_JVM) as whole,
    ):
        yield shown, whole


@contextmanager
def showing(cluster: ShownCluster, profile: str) -> Iterator[None]:
    """What its clients see, until the block is left."""

    def show(what: Shown) -> None:
        for proxy in cluster.proxies.values():
            proxy.shown = what
            proxy.drop()

    show(PROFILES[profile])
    try:
        yield
    finally:
        show(Shown())


def copied(mirror: Program, target: KafkaCluster, remote: str) -> int:
    """How many records arrive before it ends, or patience does."""
    deadline = time.monotonic() + _PATIENCE_S
    count = 0
    with mirror:
        while count < COUNT and time.monotonic() < deadline:
            assert mirror.process is not None
            if mirror.process.poll() is not None:
                break
            if remote in topics(target.internal_bootstrap):
                count = sum(end_offsets(target.internal_bootstrap, remote).values())
            time.sleep(0.5)
    return count


@pytest.mark.parametrize("syncs_configs", ["true", "false"])
@pytest.mark.parametrize("role", ["source", "target"])
@pytest.mark.parametrize("profile", PROFILES)
def test_where_mirror_maker_copies_so_do_we(
    clusters: tuple[ShownCluster, KafkaCluster],
    tmp_path: Path,
    profile: str,
    role: str,
    syncs_configs: str,
) -> None:
    shown, whole = clusters
    source, target = (shown, whole) if role == "source" else (whole, shown)
    counts: dict[str, int] = {}
    for name, make in (("theirs", mirror_maker), ("ours", Mirror)):
        topic, alias = (f"{name}-{uuid.uuid4().hex[:8]}" for name in ("t", name))
        create_topic(source.internal_bootstrap, topic)
        rows = [NewRecord(b"k", b"%d" % number) for number in range(COUNT)]
        produce(source.internal_bootstrap, topic, rows)
        directory = tmp_path / name
        directory.mkdir()
        keys = flow(source, target, alias, "target") | {"topics": topic}
        keys |= {f"A->{alias}.sync.topic.configs.enabled": syncs_configs}
        with showing(shown, profile):
            counts[name] = copied(make(directory, keys), target, f"A.{topic}")
    assert counts["ours"] == COUNT, counts
    assert counts["theirs"] in (0, COUNT), counts
