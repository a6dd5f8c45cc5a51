"""The wire: fetch sessions, versions, leaders that move, followers that are read, brokers that are not there."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from cluster_pair import ClusterPair
from copied import Copied, Transactions, Unique, numbered
from copying import Copying
from kafka_tools import (
    QUICK_JVM,
    NewRecord,
    delete_topic,
    leaders,
    produce,
    topics,
    wait_for,
)

from sparkmirror.dataplane.fetching import Fetcher
from sparkmirror.dataplane.partition import PartitionCopy
from sparkmirror.errors import ConnectionFailed
from sparkmirror.kafka import log
from sparkmirror.kafka.api_versions import FETCH, PRODUCE
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.fetch import FetchAnswer, Fetched, FetchLimits, FetchSession
from sparkmirror.kafka.settings import client_settings
from sparkmirror.tools.clusters import KafkaCluster, free_port, run_tool

Make = Callable[..., Copied]
NEVER = 3600.0


@pytest.fixture
def make(cluster_pair: ClusterPair, unique: Unique) -> Iterator[Make]:
    """Topics with their copies, on any two clusters."""
    made: list[Copied] = []

    def new(
        partitions: int = 1,
        source: KafkaCluster = cluster_pair.source,
        target: KafkaCluster = cluster_pair.target,
    ) -> Copied:
        made.append(Copied(source, target, unique, partitions))
        return made[-1]

    yield new
    for copied in made:
        copied.close()


@pytest.fixture(scope="module")
def racked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers in a rack each, whose followers may be read."""
    directory = tmp_path_factory.mktemp("racked")
    with KafkaCluster("racked", 3, directory, racks=True, jvm=QUICK_JVM) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A broker that keeps no fetch sessions, and looks at the last two seconds when it throttles."""
    directory = tmp_path_factory.mktemp("narrow")
    properties = {"max.incremental.fetch.session.cache.slots": "0", "quota.window.num": "2"}
    with KafkaCluster("narrow", 1, directory, properties, jvm=QUICK_JVM) as cluster:
        yield cluster


class Sessions:
    """Listens to all fetch sessions of the process: what was sent, what came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        self.errors: list[int] = []
        self.sent_at: list[float] = []
        self.muted: list[tuple[float, int]] = []
        self.disturb: Callable[[FetchSession], None] | None = None
        request, answer = FetchSession.request, FetchSession.answer

        def heard_request(session: FetchSession, correlation: int, client_id: str) -> bytes:
            if self.disturb is not None and session._id:
                self.disturb(session)
                self.disturb = None
            frame = request(session, correlation, client_id)
            self.sizes.append(len(frame))
            self.sent_at.append(time.monotonic())
            return frame

        def heard_answer(session: FetchSession, payload: memoryview) -> FetchAnswer:
            found = answer(session, payload)
            if found.error:
                self.errors.append(found.error)
            if found.throttle_ms:
                self.muted.append((time.monotonic(), found.throttle_ms))
            return found

        monkeypatch.setattr(FetchSession, "request", heard_request)
        monkeypatch.setattr(FetchSession, "answer", heard_answer)


# -- sessions ---------------------------------------------------------------------------------


def test_idle_partitions_are_not_in_the_requests(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = make(100)
    with copied.copying(fetch=FetchLimits(max_wait_ms=50)) as task:
        copied.until_begun(task)
        sessions = Sessions(monkeypatch)
        task.until("requests are small", lambda: bool(sessions.sizes) and sessions.sizes[-1] < 100)
        sessions.sizes.clear()
        for i in range(5):
            copied.produce(numbered(1, partition=7, first=i))
            copied.until(task, i + 1)
        task.until("more requests", lambda: len(sessions.sizes) >= 10)
        assert max(sessions.sizes) < 150  # a hundred partitions take 3,300 bytes
    assert copied.arrived() == copied.sent()


@pytest.mark.parametrize("field", ["_id", "_epoch"])
def test_a_lost_session_is_begun_anew(
    make: Make, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    copied = make(3)
    sessions = Sessions(monkeypatch)
    with copied.copying(fetch=FetchLimits(max_wait_ms=50)) as task:
        for turn in range(3):
            sessions.disturb = lambda session: setattr(session, field, getattr(session, field) + 9)
            for partition in range(3):
                copied.produce(numbered(10, partition=partition, first=10 * turn))
            copied.until(task, 30 * (turn + 1))
            task.until("the broker noticed", lambda n=turn: len(sessions.errors) > n)  # type: ignore[misc]
    assert set(sessions.errors) == ({70} if field == "_id" else {71})
    assert copied.arrived() == copied.sent()


def test_a_broker_that_keeps_no_sessions(
    make: Make, narrow: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = make(20, source=narrow)
    sessions = Sessions(monkeypatch)
    with copied.copying() as task:
        for i in range(3):
            for partition in range(20):
                copied.produce(numbered(5, partition=partition, first=5 * i))
            copied.until(task, 100 * (i + 1))
        fetcher = task.task._fetcher
        assert all(channel.session._id == 0 for channel in fetcher._channels._channels.values())
    assert sessions.errors == []
    assert copied.arrived() == copied.sent()


def test_reading_for_once_takes_no_place_among_the_sessions(make: Make) -> None:
    copied = make()
    copied.produce(numbered(3))
    flow = copied.flow
    for _ in range(3):
        fetched = log.fetch_once(flow.source, copied.topic, 0, 0, FetchLimits())
        assert len(fetched.records) > 0
    session = FetchSession(FetchLimits(), 13, kept=False)
    info = flow.source.leader(copied.topic, 0)
    connection = flow.source.connection(info.leader)
    correlation = connection.next_correlation()
    payload = connection.exchange_frames([session.request(correlation, "x")], correlation)
    assert session.answer(payload).session_id == 0


@pytest.mark.slow
def test_a_throttled_reader_waits_as_long_as_it_is_told(
    make: Make, narrow: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = make(source=narrow)
    quota = ["--entity-type", "clients", "--entity-name", "sparkmirror"]
    alter = ["--bootstrap-server", narrow.bootstrap, "--alter", *quota]
    run_tool("kafka.admin.ConfigCommand", *alter, "--add-config", "consumer_byte_rate=200000")
    copied.produce(numbered(400, 1000), batch_num_messages=50)
    sessions = Sessions(monkeypatch)
    fetch = FetchLimits(partition_max_bytes=100_000)
    with copied.copying(fetch=fetch) as task:
        task.until("the broker throttles", lambda: len(sessions.muted) > 0)
        copied.until(task, 400)
    for told, throttle_ms in sessions.muted:
        later = [sent for sent in sessions.sent_at if sent > told]
        assert not later or later[0] - told >= throttle_ms / 1000 - 0.002
    assert copied.arrived() == copied.sent()


# -- versions ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fetch", "write"), [(4, 3), (5, 5), (6, 7), (9, 8), (11, 12), (12, 13), (13, 13)]
)
def test_old_and_new_versions_of_fetch_and_produce(
    make: Make, monkeypatch: pytest.MonkeyPatch, fetch: int, write: int
) -> None:
    newest = Connection.version_of
    caps = {FETCH.key: fetch, PRODUCE.key: write}
    monkeypatch.setattr(
        Connection,
        "version_of",
        lambda self, api, most=None: newest(self, api, caps.get(api.key, most)),
    )
    codec = "lz4" if fetch < 10 or write < 7 else "zstd"
    copied = make(2)
    copied.produce(numbered(200, 100), batch_num_messages=20, compression_type=codec)
    copied.produce(numbered(20, 100, 1))
    first, second = Transactions(copied, "a"), Transactions(copied, "b")
    first.begin(3)
    second.begin(3)
    first.abort()
    second.commit()
    with copied.copying(flush_interval=NEVER) as task:
        copied.until(task, 223)
        task.abandon()
    with copied.copying() as task:  # which has to align with what the first has written
        copied.produce(numbered(20, 100, 1, first=20))
        copied.until(task, 243)
    assert copied.arrived() == copied.sent()


# -- leaders ----------------------------------------------------------------------------------


@contextmanager
def load(copied: Copied, partitions: int) -> Iterator[list[int]]:
    """Records to every partition until the block ends; gives how many there are by then."""
    over, count = threading.Event(), [0]

    def run() -> None:
        while not over.is_set():
            rows = [
                row
                for partition in range(partitions)
                for row in numbered(20, 100, partition, first=count[0])
            ]
            produce(copied.source, copied.topic, rows, batch_num_messages=7, acks="all")
            count[0] += 20
            over.wait(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join()


def grows(copied: Copied, task: Copying, by: int = 500) -> None:
    """Wait until the copy has gone on by this many records."""
    begin = copied.end()
    copied.until(task, begin + by)


def all_arrived(copied: Copied, task: Copying) -> None:
    sent = copied.sent()
    copied.until(task, len(sent))
    assert copied.arrived() == sent


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_a_leader_of_the_source_is_killed(
    make: Make, racked: KafkaCluster
) -> None:
    copied = make(3, source=racked)
    with copied.copying() as task, load(copied, 3):
        grows(copied, task)
        leader = leaders(racked.bootstrap, copied.topic)[0]
        racked.kill(leader)
        grows(copied, task)
        racked.restart(leader)
        grows(copied, task)
    with copied.copying() as task:
        all_arrived(copied, task)


@pytest.mark.slow
def test_nothing_is_lost_or_doubled_when_leaders_of_the_target_stop_or_are_killed(
    make: Make, racked: KafkaCluster
) -> None:
    copied = make(3, target=racked)
    with copied.copying() as task, load(copied, 3):
        for end in (racked.stop, racked.kill):
            grows(copied, task)
            leader = leaders(racked.bootstrap, copied.remote)[1]
            end(leader)
            grows(copied, task)
            racked.restart(leader)
    with copied.copying() as task:
        all_arrived(copied, task)


@pytest.mark.slow
def test_a_transaction_that_ends_under_another_leader(
    make: Make, racked: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marker has a newer epoch than the last record read: no log was cut back by that."""
    copied = make(source=racked)
    transactions = Transactions(copied, "a")
    transactions.begin(5)
    leader = leaders(racked.bootstrap, copied.topic)[0]
    with copied.copying() as task:
        copied.until_begun(task)
        racked.stop(leader)
        transactions.commit()
        copied.until(task, 5)
        refused = list[int]()
        refuse = Fetcher._refused

        def heard(self: Fetcher, copy: PartitionCopy, fetched: Fetched) -> None:
            refused.append(fetched.error)
            refuse(self, copy, fetched)

        monkeypatch.setattr(Fetcher, "_refused", heard)
        for i in range(3):
            copied.produce(numbered(1, first=i))
            copied.until(task, 6 + i)
    racked.restart(leader)
    assert refused == []
    assert copied.arrived() == copied.sent()


def test_a_target_topic_that_is_deleted_does_not_end_the_task(make: Make) -> None:
    gone, stays = make(), make()
    with stays.flow.copying([*gone.plans(), *stays.plans()]) as task, load(gone, 1):
        grows(gone, task, 100)
        delete_topic(gone.target, gone.remote)
        wait_for("it is gone", lambda: gone.remote not in topics(gone.target))
        for i in range(5):
            stays.produce(numbered(10, first=10 * i))
            stays.until(task, 10 * (i + 1))
    assert stays.arrived() == stays.sent()


# -- followers --------------------------------------------------------------------------------


def test_the_follower_in_our_rack_is_read(
    make: Make, racked: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = make(3, source=racked)
    leader = leaders(racked.bootstrap, copied.topic)[0]
    near = leader % 3 + 1
    fetch = FetchLimits(rack=f"rack-{near}")
    read_from: dict[int, set[int]] = {}
    take = Fetcher._take

    def heard(self: Fetcher, copy: PartitionCopy, fetched: Fetched) -> None:
        if len(fetched.records):
            read_from.setdefault(copy.key[1], set()).add(self._home[copy.key])
        take(self, copy, fetched)

    monkeypatch.setattr(Fetcher, "_take", heard)
    for partition in range(3):
        copied.produce(numbered(100, 100, partition))
    with copied.copying(fetch=fetch, flush_interval=NEVER) as task:
        copied.until(task, 300)
        task.abandon()
    with copied.copying(fetch=fetch) as task:  # aligns, for which leaders are read
        for partition in range(3):
            copied.produce(numbered(100, 100, partition, first=100))
        copied.until(task, 600)
    assert read_from == {partition: {near} for partition in range(3)}
    assert copied.arrived() == copied.sent()


@pytest.mark.slow
def test_reading_goes_on_at_the_leader_when_the_follower_is_gone(
    make: Make, racked: KafkaCluster
) -> None:
    copied = make(source=racked)
    leader = leaders(racked.bootstrap, copied.topic)[0]
    near = leader % 3 + 1
    with copied.copying(fetch=FetchLimits(rack=f"rack-{near}")) as task:
        copied.produce(numbered(10))
        copied.until(task, 10)
        assert task.task._fetcher._home[copied.topic, 0] == near
        racked.stop(near)
        copied.produce(numbered(10, first=10))
        copied.until(task, 20)
        racked.restart(near)
    assert copied.arrived() == copied.sent()


# -- brokers that are not there ---------------------------------------------------------------


def cluster_at(*ports: int, **properties: str) -> Cluster:
    bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports)
    fields = {"bootstrap.servers": bootstrap} | {
        key.replace("_", "."): value for key, value in properties.items()
    }
    return Cluster(client_settings("A", fields))


def test_a_cluster_that_is_not_there_is_one_line_with_a_remedy() -> None:
    port = free_port()
    with pytest.raises(ConnectionFailed) as caught:
        cluster_at(port).refresh([])
    text = str(caught.value)
    assert f"No broker of cluster A (127.0.0.1:{port}) can be reached." in text
    assert "Connection refused" in text
    assert "Check bootstrap.servers" in caught.value.remedy
    assert "\n" not in text
    assert caught.value.retriable


def test_the_first_broker_that_answers_will_do(source_cluster: KafkaCluster) -> None:
    """Of three: one refuses, one takes the connection and never answers, one serves."""
    alive = int(source_cluster.bootstrap.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        cluster = cluster_at(
            free_port(), silent.getsockname()[1], alive, socket_connection_setup_timeout_ms="300"
        )
        cluster.refresh([])
        assert list(cluster.brokers) == [1]
        cluster.close()


def test_a_task_waits_for_clusters_that_are_not_there_yet(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    copied = make()
    copied.produce([NewRecord(b"k", b"v")])
    refuse = threading.Event()
    refuse.set()
    connect = socket.create_connection

    def refusing(address: tuple[str, int], *rest: Any, **more: Any) -> socket.socket:
        if refuse.is_set():
            raise ConnectionRefusedError(111, "Connection refused")
        return connect(address, *rest, **more)

    monkeypatch.setattr(socket, "create_connection", refusing)
    with copied.copying() as task:
        task.until("it was tried twice", lambda: caplog.text.count("can be reached") >= 2)
        refuse.clear()
        task.until("the copy is there", lambda: copied.end() == 1)
    assert all("\n" not in record.getMessage() for record in caplog.records)


def test_leaders_tell_whether_the_metadata_names_topics_of_the_past(make: Make) -> None:
    mirrored = make(3)
    source = mirrored.flow.source
    mirrored.produce(numbered(100))
    source.refresh([mirrored.topic])
    keys = [(mirrored.topic, partition) for partition in range(3)]
    assert log.unknown_ids(source, keys) == frozenset()
    info = source.topics[mirrored.topic]
    source.topics[mirrored.topic] = replace(info, topic_id=bytes([9] * 16))
    assert log.unknown_ids(source, keys) == frozenset(keys)
