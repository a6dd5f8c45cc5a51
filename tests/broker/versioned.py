"""Pairs of versions of Kafka, and topics that `sparkmirror run` copies from the one to the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from cluster_pair import ClusterPair, VersionPair
from confluent_kafka import Producer
from copying import CONNECTOR, settings_of
from kafka_tools import (
    Headers,
    NewRecord,
    create_topic,
    delete_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from running import contents

from sparkmirror.dataplane.positions import PositionStore, StoreAddress
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.tools.clusters import KafkaCluster
from sparkmirror.tools.jvm import KAFKA_VERSION

OLD_VERSIONS = ("2.4.1", "2.8.2", "3.9.1")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PREFIX = "versioned"
"""Of the topics and groups that `mirror_keys` name."""
Content = tuple[int, bytes | None, bytes | None, Headers]
OFFSETS_TOPIC = "mm2-offsets.A.internal"
_RESTART_S = 120.0
_COPY_S = 120.0  # the mirror may just have been started
_PAUSE_S = 0.01


def version_pairs() -> list[VersionPair]:
    """Each old version as source and as target of the current one, and of itself."""
    return [
        pair
        for old in OLD_VERSIONS
        for pair in (
            VersionPair(old, KAFKA_VERSION),
            VersionPair(KAFKA_VERSION, old),
            VersionPair(old, old),
        )
    ]


def is_before(version: str, major: int, minor: int) -> bool:
    """Whether a version is older than `major.minor`."""
    found = [int(number) for number in version.split(".")[:2]]
    return found < [major, minor]


def mirror_keys(aliases: Mapping[str, KafkaCluster], *flows: str) -> dict[str, str]:
    """The properties of `sparkmirror run` for these flows (`A->B`), with all intervals short."""
    return {
        "clusters": ", ".join(aliases),
        **{f"{alias}.bootstrap.servers": found.bootstrap for alias, found in aliases.items()},
        **{f"{flow}.enabled": "true" for flow in flows},
        "replication.factor": "1",
        "topics": f"{PREFIX}-.*",
        "groups": f"{PREFIX}-.*",
        "refresh.topics.interval.seconds": "1",
        "refresh.groups.interval.seconds": "1",
        "sync.topic.configs.interval.seconds": "1",
        "emit.heartbeats.interval.seconds": "1",
        "emit.checkpoints.interval.seconds": "1",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "1",
        "mirror.recreated.target": "restart",
    }


class VersionedTopic:
    """A topic of the source with numbered records, and its copy `A.<topic>` on the target."""

    def __init__(
        self,
        pair: ClusterPair,
        name: str,
        partitions: int = 2,
        *,
        alias: str = "A",
        configs: Mapping[str, str] | None = None,
    ) -> None:
        self.source, self.target = pair
        self.name, self.remote = name, f"{alias}.{name}"
        self.partitions = partitions
        self._configs = dict(configs or {})
        self._count = 0
        self.create()

    def create(self) -> None:
        create_topic(self.source.bootstrap, self.name, self.partitions, configs=self._configs)

    def create_again(self) -> None:
        """Delete the topic at the source and create it with no records."""
        delete_topic(self.source.bootstrap, self.name)
        wait_for(f"{self.name} is gone", lambda: self.name not in topics(self.source.bootstrap))
        self.create()

    def delete_remote(self) -> None:
        """Delete the topic at the target; a running mirror may create it again at once."""
        delete_topic(self.target.bootstrap, self.remote, awaits_name=False)

    # -- records ------------------------------------------------------------------------------

    def produce(self, count: int, *, age_s: int = 0, **client: Any) -> None:
        """The next records, none like another, to all partitions in turn."""
        self.write(self._next(count, age_s), **client)

    def write(self, records: Iterable[NewRecord], **client: Any) -> None:
        produce(self.source.bootstrap, self.name, records, **client)

    def _next(self, count: int, age_s: int = 0) -> list[NewRecord]:
        first, self._count = self._count, self._count + count
        now = time.time_ns() // 1_000_000 - age_s * 1000
        return [
            NewRecord(
                b"k%d" % number,
                b"%d:" % number + b"x" * (number % 200),
                number % self.partitions,
                now + number % 1000,
                (("n", b"%d" % number), ("empty", None)) if number % 3 == 0 else (),
            )
            for number in range(first, first + count)
        ]

    @contextmanager
    def load(self) -> Iterator[None]:
        """Records all the time, from one producer that repeats what was not acknowledged."""
        over = threading.Event()
        settings = {"bootstrap.servers": self.source.bootstrap, "enable.idempotence": True}
        producer = Producer({**settings, "linger.ms": 5})

        def run() -> None:
            while not over.wait(_PAUSE_S):
                for record in self._next(10):
                    row = record._asdict() | {"headers": list(record.headers)}
                    producer.produce(self.name, **row)
                producer.poll(0)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            assert producer.flush(_RESTART_S) == 0

    # -- both sides ---------------------------------------------------------------------------

    def sent(self) -> dict[int, list[Content]]:
        """What the source holds, by partition in order."""
        return contents(self.source, self.name)

    def arrived(self) -> dict[int, list[Content]]:
        """What the target holds, by partition in order; nothing while there is no remote topic."""
        known = self.remote in topics(self.target.bootstrap)
        return contents(self.target, self.remote) if known else {}

    def count(self) -> int:
        """How many records the target holds."""
        return sum(len(records) for records in self.arrived().values())

    def await_count(self, wanted: int, patience: float = _COPY_S) -> None:
        """Until the target holds so many records."""
        try:
            wait_for(f"{wanted} in {self.remote}", lambda: self.count() >= wanted, patience)
        except AssertionError as error:
            raise AssertionError(f"{error}; it holds {self.count()}") from None

    def await_positions(self) -> None:
        """Until the positions behind all records are written: before that the records on the target alone tell of them."""
        cluster = Cluster(settings_of("B", self.target))
        store = PositionStore(cluster, StoreAddress(OFFSETS_TOPIC, CONNECTOR, "A"))
        ends = end_offsets(self.source.bootstrap, self.name)

        def written() -> bool:
            cluster.refresh([OFFSETS_TOPIC])
            store.catch_up()
            found = {partition: store.get((self.name, partition)) for partition in ends}
            return all(at is not None and at.next_offset >= ends[p] for p, at in found.items())

        try:
            wait_for(f"positions of {self.name} at {ends}", written)
        finally:
            cluster.close()

    def end(self) -> int:
        """How many offsets the target has used: what `count` tells at leisure, under load."""
        known = self.remote in topics(self.target.bootstrap)
        return sum(end_offsets(self.target.bootstrap, self.remote).values()) if known else 0

    def await_end(self, wanted: int) -> None:
        wait_for(f"{self.remote} ends at {wanted}", lambda: self.end() >= wanted, _COPY_S)

    def await_all(self, patience: float = _COPY_S) -> None:
        """Until the target holds as many records as the source."""
        self.await_count(sum(len(records) for records in self.sent().values()), patience)

    def check(self, before: Mapping[int, list[Content]] | None = None) -> int:
        """The target holds what it held `before`, then the source's records, once and in order; gives how many these are."""
        sent = self.sent()
        wanted = {p: [*(before or {}).get(p, []), *sent.get(p, [])] for p in range(self.partitions)}
        found = self.arrived()
        for partition, records in wanted.items():
            assert_same_records(f"{self.remote}-{partition}", found.get(partition, []), records)
        return sum(len(records) for records in sent.values())


def assert_same_records(place: str, found: list[Content], wanted: list[Content]) -> None:
    """The same records in the same order; says in few words where they differ."""
    if found == wanted:
        return
    pairs = enumerate(zip(found, wanted, strict=False))
    first = next((i for i, (one, other) in pairs if one != other), min(len(found), len(wanted)))
    raise AssertionError(
        f"{place} holds {len(found)} records for {len(wanted)}, {len(found) - len(set(found))} twice; from {first} on "
        f"{found[first : first + 2]} for {wanted[first : first + 2]}"
    )
