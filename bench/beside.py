"""Topics beside one with a query: two flows that are warm in; how fast each copies a backlog, in turn, out.

Both flows run all the time, one with the query and one without, each with topics of its own. A backlog is written in a
transaction and is there at once when that is committed, so that neither a start nor the writing is measured.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from confluent_kafka import Producer

from bench import workloads as w
from bench.fill import flush, produce
from bench.measure import EndOffsets, wait_for_total
from bench.payloads import payloads
from bench.peers import Flow, Peer, Replicator, replicator
from bench.stage import Stage
from bench.topics import QUIET, create_topics, delete_records

KINDS = ("plain", "query")
START_SECONDS = 180.0
COPY_SECONDS = 600.0
TRANSACTION_MS = 600_000
# What is deleted gives its room back by whole segments; the target's topics get the same settings.
SMALL_SEGMENTS = {"segment.bytes": str(16 << 20), "file.delete.delay.ms": "1000"}


@dataclass(slots=True)
class Beside:
    """One flow at work, and how many records its target has so far."""

    workload: w.Beside
    stage: Stage
    kind: str
    flow: Flow
    running: Replicator
    others: EndOffsets
    queried: EndOffsets
    producer: Producer
    values: Sequence[bytes]
    copied: int = 0
    kept: int = 0

    def backlog(self, scale: float = 1.0) -> float:
        """Write a backlog, show it, wait until all of it is copied; records per second of the topics without a query."""
        counts, topics = self.workload.counts(scale), topics_of(self.workload, self.kind)
        self.producer.begin_transaction()
        for (topic, partitions), count in zip(topics.items(), counts, strict=True):
            for number, value in enumerate(self._values(count)):
                produce(self.producer, topic, number % partitions, value)
        flush(self.producer)
        self.producer.commit_transaction(60)
        begin = time.monotonic()
        self.copied += sum(counts[:-1])
        self._await(self.others, self.copied)
        seconds = max(time.monotonic() - begin, 1e-3)
        self.kept += counts[-1]
        if self.kind == "query":
            self.kept -= sum(self.workload.dropped in value for value in self._values(counts[-1]))
        self._await(self.queried, self.kept)
        return sum(counts[:-1]) / seconds

    def _values(self, count: int) -> Iterator[bytes]:
        return itertools.islice(itertools.cycle(self.values), count)

    def _await(self, offsets: EndOffsets, total: int) -> None:
        wait_for_total(offsets, total, seconds=COPY_SECONDS, check=self.running.check)

    def clear(self) -> None:
        """Give the room back that was taken on both sides; offsets go on."""
        names = topics_of(self.workload, self.kind)
        delete_records(self.stage.source.bootstrap, names)
        remote = {f"{self.flow.alias}.{name}": count for name, count in names.items()}
        delete_records(self.stage.target.bootstrap, remote)


def topics_of(workload: w.Beside, kind: str) -> dict[str, int]:
    """The topics of one flow, the one that passes through the query last."""
    names = (f"{workload.name.lower()}-{kind}-{n}" for n in range(workload.topics + 1))
    return dict.fromkeys(names, workload.partitions)


def measure(stage: Stage, workload: w.Beside, peer: Peer) -> dict[str, float]:
    """In turn, since the machine is not always alike, and each first in every other round."""
    speeds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    with contextlib.ExitStack() as stack:
        flows = {kind: stack.enter_context(_flow(stage, workload, peer, kind)) for kind in KINDS}
        for number in range(-workload.warm_ups, workload.rounds):
            for kind in KINDS if number % 2 else reversed(KINDS):
                speed = flows[kind].backlog(1.0 if number >= 0 else workload.warm_up)
                stage.say(f"{peer.name}: round {number + 1}, {kind}: {speed:,.0f} records/s")
                flows[kind].clear()
                if number >= 0:
                    speeds[kind].append(speed)
    pairs = zip(speeds["query"], speeds["plain"], strict=True)
    found = {w.BESIDE: statistics.median(query / plain for query, plain in pairs)}
    return found | {f"records/s, {kind}": statistics.median(speeds[kind]) for kind in KINDS}


@contextlib.contextmanager
def _flow(stage: Stage, workload: w.Beside, peer: Peer, kind: str) -> Iterator[Beside]:
    topics = topics_of(workload, kind)
    *others, queried = topics
    create_topics(stage.source.bootstrap, topics, SMALL_SEGMENTS)
    keys = {"transform.sql": workload.query, "transform.topics": queried}
    extra = {f"{{source}}->target.{key}": value for key, value in keys.items()}
    flow = Flow(
        f"sm{workload.name.lower()}{kind}",
        stage.source.bootstrap,
        stage.target.bootstrap,
        ",".join(topics),
        extra if kind == "query" else {},
    )

    def ends(*names: str) -> EndOffsets:
        remote = {f"{flow.alias}.{name}": topics[name] for name in names}
        return EndOffsets(stage.target.bootstrap, remote)

    with replicator(peer, flow, stage.directory) as running:
        _await_topics(ends(*topics).exist, running)
        yield Beside(
            workload,
            stage,
            kind,
            flow,
            running,
            ends(*others),
            ends(queried),
            _producer(stage, workload, kind),
            payloads(workload.record_size),
        )


def _await_topics(exist: Callable[[], bool], running: Replicator) -> None:
    until = time.monotonic() + START_SECONDS
    while not exist() and time.monotonic() < until:
        running.check()
        time.sleep(0.2)


def _producer(stage: Stage, workload: w.Beside, kind: str) -> Producer:
    fill = workload.fill
    producer = Producer(
        {
            "bootstrap.servers": stage.source.bootstrap,
            **QUIET,
            "transactional.id": f"bench-{workload.name}-{kind}",
            "transaction.timeout.ms": TRANSACTION_MS,
            "compression.type": fill.compression,
            "batch.size": fill.batch_size,
            "linger.ms": fill.linger_ms,
            "queue.buffering.max.messages": 200_000,
        }
    )
    producer.init_transactions(60)
    return producer
