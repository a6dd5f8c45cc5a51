"""`sparkmirror run` as a user starts it: a properties file in, a process to watch, kill and stop."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from kafka_tools import Headers, consume
from program import Program

from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.machine import HERE, Machine

Content = tuple[int, bytes | None, bytes | None, Headers]


def properties(source: KafkaCluster, target: KafkaCluster, **keys: str) -> dict[str, str]:
    """A flow A->B as small as it gets; `keys` have underscores for dots and `flow_` for `A->B.`."""
    found = {
        "clusters": "A, B",
        "A.bootstrap.servers": source.bootstrap,
        "B.bootstrap.servers": target.bootstrap,
        "A->B.enabled": "true",
        "replication.factor": "-1",
    }
    for name, value in keys.items():
        dotted = name.replace("_", ".")
        found["A->B." + dotted.removeprefix("flow.") if dotted.startswith("flow.") else dotted] = (
            value
        )
    return found


class Mirror(Program):
    """A running `sparkmirror run`."""

    def __init__(
        self,
        directory: Path,
        keys: Mapping[str, str],
        *arguments: str,
        machine: Machine = HERE,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        file = directory / "mm2.properties"
        file.write_text("".join(f"{name} = {value}\n" for name, value in keys.items()))
        command = [*machine.enter, sys.executable, "-m", "sparkmirror", "run", str(file)]
        command += arguments
        super().__init__(command, directory / "sparkmirror.log", environment)


def contents(cluster: KafkaCluster, topic: str) -> dict[int, list[Content]]:
    """What a topic holds, by partition in order, without the offsets."""
    found: dict[int, list[Content]] = defaultdict(list)
    for record in consume(cluster.bootstrap, topic):
        found[record.partition].append((record.timestamp, record.key, record.value, record.headers))
    return dict(found)


def assert_same(source: KafkaCluster, topic: str, target: KafkaCluster, remote: str) -> int:
    """Both topics hold the same records in the same order; gives how many."""
    theirs, ours = contents(source, topic), contents(target, remote)
    for partition in sorted(theirs.keys() | ours.keys()):
        wanted, got = theirs.get(partition, []), ours.get(partition, [])
        if wanted == got:
            continue
        different = next(
            (i for i, (a, b) in enumerate(zip(wanted, got, strict=False)) if a != b),
            min(len(wanted), len(got)),
        )
        raise AssertionError(
            f"{topic}-{partition}: {len(wanted)} records at the source, {len(got)} on the target, "
            f"different from record {different} on: {wanted[different : different + 2]} / "
            f"{got[different : different + 2]}; {len(got) - len(set(got))} repeated"
        )
    return sum(len(records) for records in theirs.values())
