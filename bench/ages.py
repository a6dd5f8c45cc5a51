"""A way through one or two clusters comes in, the milliseconds that records take on it go out."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from bench.latency import READY, after_warm_up, percentile, read
from bench.stage import Stage, await_exit, await_text, python_module
from bench.topics import create_topics
from sparkmirror.errors import SparkMirrorError

FLOOR_TOPIC = "floor"
# Until both brokers have compiled the paths of small requests (a few seconds are not enough), and then for the floor itself.
FLOOR_WARM_UP = 12.0
FLOOR_SECONDS = 4.0


@dataclass(frozen=True, slots=True)
class Route:
    """Where records are produced and where they are consumed; `files` begins the names of logs."""

    write: str
    write_topics: Mapping[str, int]
    read: str
    read_topics: Mapping[str, int]
    files: Path


def spell(topics: Mapping[str, int]) -> list[str]:
    return [f"{topic}:{partitions}" for topic, partitions in topics.items()]


def ages(route: Route, rate: int, warm_up: float, measured: float) -> list[float]:
    """Milliseconds that each record took after the warm-up."""
    seconds = warm_up + measured
    count = int(rate * seconds)
    file, heard, sent = (Path(f"{route.files}.{end}") for end in ("ages", "in", "out"))
    for stale in (file, heard, sent):
        stale.unlink(missing_ok=True)
    reading = [route.read, str(count), str(seconds + 20), str(file), *spell(route.read_topics)]
    writing = [route.write, str(rate), str(seconds), *spell(route.write_topics)]
    with python_module("bench.latency", ["consume", *reading], heard) as consumer:
        await_text(consumer, heard, READY, 30)
        with python_module("bench.latency", ["produce", *writing], sent) as producer:
            await_exit(producer, seconds + 60, sent)
            await_exit(consumer, 60, heard)
    records = read(file)
    if len(records) < count:
        raise SparkMirrorError(f"{len(records)} of {count} records have arrived in time.")
    return after_warm_up(records, warm_up)


def floors(stage: Stage, rate: int, partitions: int) -> str:
    """What the clients and one broker take without a replicator, on each side.

    It also lets both brokers compile the paths of small requests. A cold broker builds up a
    backlog at this pace, which would be charged to the replicator that goes first.
    """
    topics = {FLOOR_TOPIC: partitions}
    sides = {"source": stage.source.bootstrap, "target": stage.target.bootstrap}

    def one(side: str) -> list[float]:
        create_topics(sides[side], topics)
        route = Route(sides[side], topics, sides[side], topics, stage.directory / f"floor-{side}")
        return ages(route, rate, FLOOR_WARM_UP, FLOOR_SECONDS)

    with ThreadPoolExecutor(len(sides)) as pool:
        found = dict(zip(sides, pool.map(one, sides), strict=True))
    stage.clear_target()
    return ", ".join(
        f"{side} alone p50 {percentile(values, 50):.1f} ms p99 {percentile(values, 99):.1f} ms"
        for side, values in found.items()
    )
