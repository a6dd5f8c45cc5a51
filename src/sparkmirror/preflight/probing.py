"""Looking at a cluster: how to reach it in, what was seen out. Nothing is changed, and the deadline bounds all waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from sparkmirror.errors import ConnectionFailed, KafkaError, SparkMirrorError
from sparkmirror.kafka import admin, timestamps, topic_configs
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.fetch import TopicPartition
from sparkmirror.kafka.settings import ClientSettings
from sparkmirror.preflight.facts import Ages, ClusterFacts, Reach, TopicFacts

_LONGEST_CONNECT, _LONGEST_REQUEST = 5.0, 10.0
_LEAST = 0.2
_PARTITIONS_LOOKED_AT = 60
T = TypeVar("T")
U = TypeVar("U")


class Deadline:
    """When everything must be done, by the monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._at - time.monotonic())

    def bounded(self, settings: ClientSettings) -> ClientSettings:
        """The same cluster, asked no longer than there is time."""
        left = max(_LEAST, self.left)
        return replace(
            settings,
            connect_timeout=min(settings.connect_timeout, _LONGEST_CONNECT, left),
            request_timeout=min(settings.request_timeout, _LONGEST_REQUEST, left),
        )


def at_once(
    work: Callable[[T], U], items: Sequence[T], deadline: Deadline
) -> dict[int, U | SparkMirrorError]:
    """Do it for all items beside each other; what is not done by the deadline is left out (and to its thread, which may hang)."""
    done: dict[int, U | SparkMirrorError] = {}
    crashed: list[BaseException] = []

    def run(index: int, item: T) -> None:
        try:
            done[index] = work(item)
        except SparkMirrorError as error:
            done[index] = error
        except BaseException as mistake:  # of ours: it must not pass for a cluster that is slow
            crashed.append(mistake)
            raise

    threads = [
        threading.Thread(target=run, args=(index, item), daemon=True)
        for index, item in enumerate(items)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(_LEAST, deadline.left))
    if crashed:
        raise crashed[0]
    return dict(done)


def reach(settings: ClientSettings, address: tuple[str, int], node: int | None = None) -> Reach:
    """Connect, log in, and ask which versions are spoken."""
    host, port = address
    connection = Connection(host, port, settings)
    try:
        connection.open()
        return Reach(host, port, None, dict(connection.versions), node)
    except KafkaError as error:
        return Reach(host, port, error, {}, node)
    finally:
        connection.close()


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of a cluster, and the client to ask on with where it answers."""

    facts: ClusterFacts
    cluster: Cluster | None


def look_at(settings: ClientSettings, deadline: Deadline) -> Seen:
    """Knock at every bootstrap address, and then at every address that the brokers advertise."""
    bounded = deadline.bounded(settings)
    bootstrap = _knock(bounded, [(address, None) for address in settings.bootstrap], deadline)
    first = next((reached for reached in bootstrap if reached.failure is None), None)
    if first is None:
        failure = bootstrap[0].failure
        assert failure is not None  # noqa: S101 - none was reached
        return Seen(ClusterFacts(settings.alias, bootstrap, failure=failure), None)
    cluster = Cluster(replace(deadline.bounded(settings), bootstrap=((first.host, first.port),)))
    try:
        cluster.refresh([])
        cluster_id = cluster.cluster_id()
    except KafkaError as error:
        cluster.close()
        return Seen(ClusterFacts(settings.alias, bootstrap, failure=error), None)
    advertised = [((b.host, b.port), b.node) for _, b in sorted(cluster.brokers.items())]
    brokers = _knock(deadline.bounded(settings), advertised, deadline)
    facts = ClusterFacts(settings.alias, bootstrap, brokers, cluster_id)
    if not facts.usable:
        cluster.close()
        failure = brokers[0].failure if brokers else None
        return Seen(replace(facts, failure=failure or _silent(settings)), None)
    return Seen(facts, cluster)


def _silent(settings: ClientSettings) -> ConnectionFailed:
    return ConnectionFailed(f"{settings} names no brokers.", "Check that its brokers are up.")


def _knock(
    settings: ClientSettings,
    addresses: Sequence[tuple[tuple[str, int], int | None]],
    deadline: Deadline,
) -> tuple[Reach, ...]:
    answers = at_once(lambda one: reach(settings, *one), addresses, deadline)
    found = []
    for index, (address, node) in enumerate(addresses):
        answer = answers.get(index)
        if isinstance(answer, Reach):
            found.append(answer)
            continue
        late = ConnectionFailed(
            f"Broker {address[0]}:{address[1]} of {settings} cannot be reached: no answer within {deadline.seconds:g} s.",
            "Check the address and the network, or give it more time with --timeout.",
        )
        failure = answer if isinstance(answer, KafkaError) else late
        found.append(Reach(address[0], address[1], failure, {}, node))
    return tuple(found)


# -- topics ---------------------------------------------------------------------------------------


def topics(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicFacts]:
    """Those of the topics that are there, as of the cluster's last refresh, with all their properties."""
    there = [name for name in names if name in cluster.topics]
    found = topic_configs.describe(cluster, there)
    for error in found.errors.values():
        raise error
    return {name: _topic(cluster, name, found.configs.get(name, [])) for name in there}


def bare_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicFacts]:
    """The same without their properties, for those who may not read them."""
    return {name: _topic(cluster, name, []) for name in names if name in cluster.topics}


def _topic(cluster: Cluster, name: str, entries: list[admin.ConfigEntry]) -> TopicFacts:
    info = cluster.topics[name]
    replicas = min((len(p.replicas) for p in info.partitions.values()), default=0)
    return TopicFacts(
        name,
        len(info.partitions),
        replicas,
        {entry.name: entry.value for entry in entries if entry.value is not None},
        {
            entry.name: entry.value
            for entry in entries
            if entry.value is not None
            and not (entry.is_default or entry.is_static_broker or entry.read_only)
        },
    )


def ages(cluster: Cluster, names: Sequence[str], deadline: Deadline) -> dict[str, Ages]:
    """How old the records of topics are, by their first partitions: of as many as there is time for."""
    keys: list[TopicPartition] = [(name, 0) for name in names[:_PARTITIONS_LOOKED_AT]]
    keys = [key for key in keys if _is_led(cluster, key)]
    newest = timestamps.newest(cluster, keys) if keys else {}
    found: dict[str, Ages] = {}
    for key in keys:
        if deadline.left < _LEAST:
            break
        found[key[0]] = Ages(timestamps.oldest(cluster, key), newest.get(key))
    return found


def _is_led(cluster: Cluster, key: TopicPartition) -> bool:
    info = cluster.topics.get(key[0])
    partition = None if info is None else info.partitions.get(key[1])
    return partition is not None and partition.leader in cluster.brokers
