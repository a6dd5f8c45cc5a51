"""Brokers of other makes: where MirrorMaker 2 copies from or to them, so do we, with the same file."""

from __future__ import annotations

import logging
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from broker_profiles import PROFILES
from broker_proxy import Shown
from kafka_tools import QUICK_JVM, NewRecord, create_topic, end_offsets, produce, topics
from program import Program
from running import Mirror
from shown_cluster import ShownCluster
from test_metadata_beside_mm2 import flow, mirror_maker

from sparkmirror.kafka.api_versions import CREATE_TOPICS
from sparkmirror.tools.clusters import KafkaCluster

COUNT = 300
_PATIENCE_S = 60.0
SEEN_WITHIN_S = 20.0
log = logging.getLogger(__name__)


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
def showing(cluster: ShownCluster, what: Shown) -> Iterator[None]:
    """What its clients see, until the block is left."""

    def show(what: Shown) -> None:
        for proxy in cluster.proxies.values():
            proxy.shown = what
            proxy.drop()

    show(what)
    try:
        yield
    finally:
        show(Shown())


def copied(mirror: Program, target: KafkaCluster, remote: str, wanted: int = COUNT) -> int:
    """How many records are there before it ends, or patience does."""
    deadline = time.monotonic() + _PATIENCE_S
    count = 0
    while count < wanted and time.monotonic() < deadline:
        assert mirror.process is not None
        if mirror.process.poll() is not None:
            break
        if remote in topics(target.internal_bootstrap):
            count = sum(end_offsets(target.internal_bootstrap, remote).values())
        time.sleep(0.5)
    return count


def await_end(mirror: Program, patience: float) -> None:
    """Until it ends, or it has had the time to."""
    assert mirror.process is not None
    with suppress(subprocess.TimeoutExpired):
        mirror.process.wait(patience)


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
        with showing(shown, PROFILES[profile]), make(directory, keys) as mirror:
            counts[name] = copied(mirror, target, f"A.{topic}")
    assert counts["ours"] == COUNT, counts
    assert counts["theirs"] in (0, COUNT), counts


@pytest.mark.parametrize("trouble", ["nobody listens", "topics may not be created"])
def test_a_flow_that_cannot_start_leaves_the_others_alone(
    clusters: tuple[ShownCluster, KafkaCluster],
    tmp_path: Path,
    trouble: str,
) -> None:
    """Two flows in one file, and one of the targets is not as it should be: more records come after that has been seen."""
    shown, whole = clusters
    counts: dict[str, int] = {}
    for name, make in (("theirs", mirror_maker), ("ours", Mirror)):
        topic, alias, down = (f"{n}-{uuid.uuid4().hex[:8]}" for n in ("t", name, "down"))
        create_topic(whole.internal_bootstrap, topic)
        rows = [NewRecord(b"k", b"%d" % number) for number in range(COUNT)]
        produce(whole.internal_bootstrap, topic, rows)
        directory = tmp_path / name
        directory.mkdir()
        is_dead = trouble == "nobody listens"
        keys = flow(whole, whole, alias, "target") | {
            "clusters": f"A, {alias}, {down}",
            f"{down}.bootstrap.servers": "127.0.0.1:1" if is_dead else shown.bootstrap,
            f"A->{down}.enabled": "true",
            "topics": topic,
        }
        with (
            showing(shown, Shown(hidden=frozenset({CREATE_TOPICS.key}))),
            make(directory, keys) as mirror,
        ):
            counts[name] = copied(mirror, whole, f"A.{topic}")
            await_end(mirror, SEEN_WITHIN_S)
            produce(whole.internal_bootstrap, topic, rows)
            counts[name] = copied(mirror, whole, f"A.{topic}", 2 * COUNT)
            mirror.kill()  # of MirrorMaker's worker that cannot start, some threads do not end
    log.info("%s: %s", trouble, counts)
    assert counts["ours"] == 2 * COUNT >= counts["theirs"], counts
