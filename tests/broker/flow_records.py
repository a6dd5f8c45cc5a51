"""What flows leave on their target, written without a flow: checkpoints and heartbeats; and our commands that read them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer
from kafka_tools import NewRecord, create_topic, end_offsets, produce, topics, wait_for

from sparkmirror.formats.mirror import Checkpoint, Heartbeat, encode_checkpoint, encode_heartbeat


def provide(bootstrap: str, *names: str, partitions: int = 1) -> None:
    """Create those of the topics that are not there."""
    there = topics(bootstrap)
    for name in names:
        if name not in there:
            create_topic(bootstrap, name, partitions)


def write_checkpoints(bootstrap: str, topic: str, checkpoints: Iterable[Checkpoint]) -> None:
    """Append to a checkpoints topic."""
    provide(bootstrap, topic)
    rows = (encode_checkpoint(checkpoint) for checkpoint in checkpoints)
    produce(bootstrap, topic, (NewRecord(key, value, 0) for key, value in rows))


def fill(bootstrap: str, topic: str, partition: int, end: int) -> None:
    """Let a partition, if there is one, have at least so many records."""
    missing = end - end_offsets(bootstrap, topic).get(partition, end)
    produce(bootstrap, topic, [NewRecord(None, b"x", partition)] * max(0, missing))


def write_heartbeats(bootstrap: str, topic: str, *flows: tuple[str, str, float]) -> None:
    """Append to a heartbeats topic: source, target and age in seconds."""
    provide(bootstrap, topic)
    now = time.time_ns() // 1_000_000
    rows = []
    for source, target, age in flows:
        at = now - int(age * 1000)
        key, value = encode_heartbeat(Heartbeat(source, target, at))
        rows.append(NewRecord(key, value, 0, at))
    produce(bootstrap, topic, rows)


def properties_file(directory: Path, properties: Mapping[str, str]) -> str:
    """A new file with these properties; gives its path."""
    path = directory / f"client-{len(list(directory.iterdir()))}.properties"
    path.write_text("".join(f"{name} = {value}\n" for name, value in properties.items()))
    return str(path)


def command(*arguments: str) -> list[str]:
    """The command line of `sparkmirror ...`."""
    return [sys.executable, "-m", "sparkmirror", *arguments]


def sparkmirror(*arguments: str) -> subprocess.CompletedProcess[str]:
    """`sparkmirror ...`, run to its end."""
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=120, check=False
    )


@contextmanager
def group_member(bootstrap: str, group: str, topic: str, protocol: str) -> Iterator[Consumer]:
    """A consumer that has joined `group` and has partitions of `topic`, and never commits."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        consumer.subscribe([topic])

        def has_joined() -> bool:
            consumer.poll(0.1)
            return bool(consumer.assignment())

        wait_for(f"a member of {group} has partitions", has_joined)
        yield consumer
    finally:
        consumer.close()
