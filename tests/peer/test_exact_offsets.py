"""MirrorMaker 2 and sparkmirror side by side on one source with transactions: whose checkpoints name the exact next record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_pair import ClusterPair, running_pair
from java_connect import JavaConnectWorker
from mirrored_groups import Mirrored, SourceTopic, create, settle, share
from our_connect import OurConnectWorker

PARTITIONS = 20
GROUPS = [f"group-{number}" for number in range(50)]
SEED = 5


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[ClusterPair]:
    yield from running_pair(1, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_translated_offset_is_the_next_record(
    clusters: ClusterPair,
    tmp_path: Path,
    pytestconfig: pytest.Config,
    capsys: pytest.CaptureFixture[str],
) -> None:
    source, target = (cluster.bootstrap for cluster in clusters)
    topic = SourceTopic(source, "orders", PARTITIONS, SEED)
    topic.grow(4, 400)
    theirs = Mirrored(topic, target, "mm2", "mm2-target")
    ours = Mirrored(topic, target, "spark", "spark-target")
    with (
        JavaConnectWorker(target, tmp_path, "mm2-workers") as java,
        OurConnectWorker(target, tmp_path, "spark-workers") as spark,
    ):
        both = ((java, theirs), (spark, ours))
        for worker, flow in both:
            create(worker, "source", flow.source_config())
        topic.grow(8, 400)
        for flow in (theirs, ours):
            flow.await_copied()
        topic.commit_anywhere(GROUPS)
        for worker, flow in both:
            create(worker, "checkpoint", flow.checkpoint_config())
        settle([theirs, ours])
        committed = topic.committed(GROUPS)
        # All that MirrorMaker's rules make of its offset syncs, and no less.
        assert theirs.translations() == theirs.by_syncs(committed)
        results = {
            "MirrorMaker 2": share(theirs.translations(), theirs.exact(committed)),
            "sparkmirror": share(ours.translations(), ours.exact(committed)),
        }
    with capsys.disabled():
        say = pytestconfig.get_terminal_writer().line
        say()
        for name, result in results.items():
            say(f"{name}: {result}")
    assert len(committed) == len(GROUPS) * PARTITIONS
    result = results["sparkmirror"]
    assert result.exact == result.total
