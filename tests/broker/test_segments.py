"""What lies on the brokers' disks: a copied batch is the source's batch, byte for byte, behind its header."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from copying import Flow
from kafka_tools import NewRecord, create_topic, end_offsets, produce

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.kafka.batches import HEADER_SIZE, whole_batches
from sparkmirror.tools.clusters import KafkaCluster, run_tool

RECORDS = 5000


def segment(cluster: KafkaCluster, topic: str) -> Path:
    (found,) = cluster.data(1).rglob(f"{topic}-0/00000000000000000000.log")
    return found


def bodies(file: Path) -> Iterator[bytes]:
    for view in whole_batches(memoryview(file.read_bytes())):
        yield bytes(view[HEADER_SIZE:])


def dumped(file: Path) -> list[tuple[str, ...]]:
    """What DumpLogSegments tells of every record, without offset and CRC of its batch."""
    text = run_tool(
        "org.apache.kafka.tools.DumpLogSegments",
        "--files",
        str(file),
        "--print-data-log",
        "--deep-iteration",
    )
    rows = re.findall(
        r"^\| offset: (\d+) CreateTime: (\d+) keySize: (-?\d+) valueSize: (-?\d+) .*?"
        r"headerKeys: (.*?) key: (.*?) payload: (.*)$",
        text,
        re.MULTILINE,
    )
    assert "compresscodec: lz4" in text
    assert "isvalid: true" in text
    assert "isvalid: false" not in text
    return rows


def test_copied_batches_are_identical_behind_the_header(
    source_cluster: KafkaCluster, target_cluster: KafkaCluster, unique: Callable[[str], str]
) -> None:
    topic = unique("w2")
    remote = f"A.{topic}"
    create_topic(source_cluster.bootstrap, topic)
    create_topic(target_cluster.bootstrap, remote)
    produce(
        source_cluster.bootstrap,
        topic,
        [
            NewRecord(
                b"%d" % i,
                json.dumps({"id": i, "user": f"u{i % 97}", "text": "lorem ipsum " * 80}).encode(),
                0,
                headers=(("h", b"%d" % i),),
            )
            for i in range(RECORDS)
        ],
        compression_type="lz4",
    )
    flow = Flow(source_cluster, target_cluster, unique("flow"))
    with flow.copying([PartitionPlan(topic, 0, remote)]) as task:
        task.until(
            "everything is copied",
            lambda: end_offsets(target_cluster.bootstrap, remote) == {0: RECORDS},
        )
    flow.close()
    ours, theirs = segment(target_cluster, remote), segment(source_cluster, topic)
    assert list(bodies(ours)) == list(bodies(theirs))
    told = dumped(ours)
    assert len(told) == RECORDS
    assert told == dumped(theirs)
