"""One workload and one replicator come in, what was measured goes out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from bench import beside
from bench import workloads as w
from bench.ages import Route, ages, floors, spell
from bench.latency import percentile
from bench.measure import EndOffsets, holding, wait_for_total
from bench.peers import Flow, Peer, Replicator, replicator
from bench.stage import Stage, await_exit, python_module
from bench.topics import create_topics
from sparkmirror.errors import SparkMirrorError

START_SECONDS = 180.0
COPY_SECONDS = 600.0
# How long the target is watched for records that should not come any more.
EXCESS_SECONDS = 1.0
CLIENT_WARM_UP = 3.0
MB = 1e6

Metrics = dict[str, float]


@dataclass(frozen=True, slots=True)
class Source:
    """The filled source of a workload, shared by both replicators."""

    topics: Mapping[str, int]
    records: int
    about: str = ""
    kept: int = 0
    """How many of them a flow with a query writes."""


@dataclass(slots=True)
class Outcome:
    """What one replicator did in one workload: metrics, or the reason why there are none."""

    metrics: Metrics = field(default_factory=dict)
    failure: str = ""


def middle(outcomes: Sequence[Outcome]) -> Outcome:
    """Of several runs of one replicator the median of each metric; or why one of them failed."""
    failure = next((outcome.failure for outcome in outcomes if outcome.failure), "")
    if failure:
        return Outcome(failure=failure)
    names = outcomes[0].metrics
    return Outcome(
        {name: statistics.median(each.metrics[name] for each in outcomes) for name in names}
    )


def prepare(stage: Stage, workload: w.Workload) -> Source:
    """Creates and fills the topics of a workload."""
    if isinstance(workload, w.Throughput):
        records = stage.filler.fill(workload)
        size = stage.filler.warm_page_cache(workload.topic)
        about = f"{records} records, {size / MB:.0f} MB on disk, {workload.fill}"
        kept = records
        if workload.dropped:
            kept -= holding(stage.source.bootstrap, workload.topic, records, workload.dropped)
            about += f", {records - kept} of them to be dropped"
        return Source({workload.topic: workload.partitions}, records, about, kept)
    if isinstance(workload, w.Beside):  # each of its flows has topics of its own
        return Source(
            {}, 0, f"{sum(workload.counts())} records in {workload.topics + 1} topics a round"
        )
    if isinstance(workload, w.Idle):
        topics = {f"w10-{n:02d}": workload.partitions for n in range(workload.topics)}
    else:
        topics = {workload.name.lower(): workload.partitions}
    create_topics(stage.source.bootstrap, topics)
    records = seed(stage, topics)
    about = f"{records} partitions"
    if isinstance(workload, w.Latency):
        about += f"; {floors(stage, max(workload.rates), workload.partitions)}"
    return Source(topics, records, about)


def seed(stage: Stage, topics: Mapping[str, int]) -> int:
    """Writes one record into each partition, so that its arrival tells that the partition flows."""
    count = sum(topics.values())
    log = stage.directory / "seed.log"
    arguments = [stage.source.bootstrap, str(count), "1", *spell(topics)]
    with python_module("bench.latency", ["produce", *arguments], log) as process:
        await_exit(process, 60, log)
    return count


def run(stage: Stage, workload: w.Workload, source: Source, peer: Peer) -> Metrics:
    """Runs one replicator on a prepared workload and removes what it has written."""
    try:
        if isinstance(workload, w.Throughput):
            return throughput(stage, workload, source, peer)
        if isinstance(workload, w.Beside):  # MirrorMaker 2 has no queries
            return {} if peer.name == "mm2" else beside.measure(stage, workload, peer)
        if isinstance(workload, w.Latency):
            return latency(stage, workload, source, peer)
        if isinstance(workload, w.Idle):
            return idle(stage, workload, source, peer)
        if isinstance(workload, w.Start):
            return start(stage, workload, source, peer)
        assert_never(workload)
    finally:
        stage.clear_target()


def flow_of(
    stage: Stage, name: str, source: Source, peer: Peer, *, far: bool = False, suffix: str = ""
) -> tuple[Flow, EndOffsets, dict[str, int]]:
    alias = f"{'mm' if peer.name == 'mm2' else 'sm'}{name.lower()}{suffix}"
    flow = Flow(
        alias,
        stage.source.far_bootstrap if far else stage.source.bootstrap,
        stage.target.bootstrap,
        ",".join(source.topics),
        w.EXTRA_PROPERTIES.get(name, {}),
    )
    remote = {f"{alias}.{topic}": count for topic, count in source.topics.items()}
    return flow, EndOffsets(stage.target.bootstrap, remote), remote


def throughput(stage: Stage, workload: w.Throughput, source: Source, peer: Peer) -> Metrics:
    flow, offsets, _ = flow_of(stage, workload.name, source, peer, far=workload.far)
    expected = source.records if peer.name == "mm2" else source.kept
    with replicator(peer, flow, stage.directory) as running:
        first = wait_for_total(offsets, 1, seconds=START_SECONDS, check=running.check)
        begin, cpu = time.monotonic(), running.tree.cpu_seconds()
        wait_for_total(
            offsets,
            expected,
            seconds=COPY_SECONDS,
            check=running.check,
            progress=lambda total: stage.say(f"{peer.name}: {total} of {expected}"),
        )
        end, cpu_end = time.monotonic(), running.tree.cpu_seconds()
        memory = running.tree.memory(begin, end)
        time.sleep(EXCESS_SECONDS)
        refuse_excess(offsets.total(), expected, peer)
    # The records that were there at the first look are not counted, nor is the time before it. What a query drops counts as
    # what it keeps.
    records = max(1, (expected - first) * source.records // expected)
    seconds = max(end - begin, 1e-3)
    size = records * workload.record_size
    return {
        w.RECORDS_PER_S: records / seconds,
        w.MB_PER_S: size / MB / seconds,
        w.CPU_PER_GB: (cpu_end - cpu) / (size / 1e9),
        w.CPU_PER_MILLION: (cpu_end - cpu) / (records / 1e6),
        w.PSS_MEAN: memory.mean_bytes / MB,
        w.PSS_PEAK: memory.peak_bytes / MB,
        w.START_S: begin - running.started,
    }


def refuse_excess(total: int, expected: int, peer: Peer) -> None:
    """MirrorMaker 2 may deliver a record twice; sparkmirror must not."""
    if total != expected and peer.name != "mm2":
        raise SparkMirrorError(f"The target holds {total} records, not {expected}.")


def latency(stage: Stage, workload: w.Latency, source: Source, peer: Peer) -> Metrics:
    flow, offsets, remote = flow_of(stage, workload.name, source, peer)
    with replicator(peer, flow, stage.directory) as running:
        catch_up(stage, source, offsets, running)
        files = stage.directory / flow.alias
        route = Route(flow.source, source.topics, flow.target, remote, files)
        metrics: Metrics = {}
        warm_up = workload.warm_up
        for rate in workload.rates:
            stage.say(f"{peer.name}: {rate} records/s for {workload.seconds:.0f} s")
            cpu, begin = running.tree.cpu_seconds(), time.monotonic()
            found = ages(route, rate, warm_up, workload.seconds)
            running.check()
            # From the second pace on only the clients are new, the replicator is warm.
            warm_up = min(warm_up, CLIENT_WARM_UP)
            used = running.tree.cpu_seconds() - cpu
            metrics |= {
                w.percentile_metric(percent, rate): percentile(found, percent)
                for percent in (50, 99)
            }
            metrics[f"{w.CPU_PERCENT} @{rate}/s"] = 100 * used / (time.monotonic() - begin)
        return metrics


def catch_up(stage: Stage, source: Source, offsets: EndOffsets, running: Replicator) -> int:
    """Waits for all that the source holds by now, which is more for the second replicator.

    Nothing is produced meanwhile, so what comes later is what this run has produced.
    """
    held = EndOffsets(stage.source.bootstrap, source.topics).total()
    return wait_for_total(offsets, held, seconds=START_SECONDS, every=0.2, check=running.check)


def idle(stage: Stage, workload: w.Idle, source: Source, peer: Peer) -> Metrics:
    flow, offsets, _ = flow_of(stage, workload.name, source, peer)
    longest = workload.settle + workload.seconds + 60
    writing = [stage.source.bootstrap, str(workload.rate), str(longest), *spell(source.topics)]
    log = stage.directory / "trickle.log"
    with replicator(peer, flow, stage.directory) as running:
        arrived = catch_up(stage, source, offsets, running)
        stage.say(f"{peer.name}: all {source.records} partitions flow; letting it settle")
        with python_module("bench.latency", ["produce", *writing], log):
            watch(running, workload.settle)
            begin, cpu = time.monotonic(), running.tree.cpu_seconds()
            watch(running, workload.seconds)
            end, cpu_end = time.monotonic(), running.tree.cpu_seconds()
        memory = running.tree.memory(begin, end)
        # The pace is kept for the whole while, or the cost of the traffic was not in it.
        expected = arrived + int(workload.rate * workload.seconds)
        wait_for_total(offsets, expected, seconds=30, every=0.5, check=running.check)
    return {
        w.CPU_PERCENT: 100 * (cpu_end - cpu) / (end - begin),
        w.PSS_MEAN: memory.mean_bytes / MB,
        w.PSS_PEAK: memory.peak_bytes / MB,
    }


def watch(running: Replicator, seconds: float) -> None:
    """Lets time pass, which is what is measured here, as long as the replicator lives."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        running.check()
        time.sleep(0.5)


def start(stage: Stage, workload: w.Start, source: Source, peer: Peer) -> Metrics:
    seconds = []
    for number in range(workload.repeats):
        flow, offsets, _ = flow_of(stage, workload.name, source, peer, suffix=f"n{number}")
        with replicator(peer, flow, stage.directory) as running:
            wait_for_total(offsets, 1, seconds=START_SECONDS, check=running.check)
            seconds.append(time.monotonic() - running.started)
        stage.say(f"{peer.name}: first record after {seconds[-1]:.1f} s")
    return {w.START_S: statistics.median(seconds)}
