"""One cluster as a client sees it: bootstrap addresses in; brokers, topics, leaders and connections out."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sparkmirror.errors import (
    AccessFailed,
    BrokerError,
    ConnectionFailed,
    KafkaError,
    Unanswered,
)
from sparkmirror.kafka import messages
from sparkmirror.kafka.api_versions import APIS, Api
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.denials import needs, sentence
from sparkmirror.kafka.request_parts import Bound, cut
from sparkmirror.kafka.settings import ClientSettings

log = logging.getLogger(__name__)

NO_TOPIC_ID = bytes(16)
QUIET_TRIES = 3
"""What is tried more often than that is logged."""
_NAMES = Bound(2000)
_LONGEST_NAME = 249
_PROBE_S = 1.5
_WITHOUT_S = 300.0
_REFUSED_WAITS_S = (1.0, 15.0)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Broker:
    node: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    name: str
    topic_id: bytes
    internal: bool
    partitions: dict[int, PartitionInfo] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Held:
    """A broker that did not let us in, and until when it is not asked again."""

    error: AccessFailed
    wait: float
    until: float


@dataclass(frozen=True, slots=True)
class _Without:
    """An API that a broker offers and does not answer, and until when it is not asked for it again."""

    error: BrokerError
    until: float


def back_off(first: float, most: float) -> Iterator[float]:
    """Waiting times that double from `first` to `most`, each with up to a fifth of jitter."""
    wait = first
    while True:
        yield min(wait, most) * random.uniform(0.8, 1.2)  # noqa: S311 - jitter, not a secret
        wait = min(wait * 2, most)


class Cluster:
    """Metadata and control connections of one cluster.

    Invariants: `topics` holds only what the last refresh of that topic answered without an error; a connection that
    broke is dropped at once and dialled anew at the next use. A broker that did not let us in is not dialled for a while: the
    same error is raised again instead, since accounts are locked where logins fail too often.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self.settings = settings
        self.brokers: dict[int, Broker] = {}
        self.topics: dict[str, TopicInfo] = {}
        self.controller = -1
        self._hidden: set[str] = set()  # topics that were asked for and may not be described
        self._connections: dict[int, Connection] = {}
        self._bootstrap: Connection | None = None
        self._held: dict[tuple[str, int], _Held] = {}
        self._without: dict[tuple[str, int, int], _Without] = {}

    # -- connections --------------------------------------------------------------------------

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        if self._bootstrap is not None:
            self._bootstrap.close()
            self._bootstrap = None

    def dial(self, node: int, *needed: Api) -> Connection:
        """A new connection to a broker, for the caller alone; BrokerError UNSUPPORTED_VERSION where it offers too little."""
        broker = self.brokers.get(node)
        if broker is None:
            raise ConnectionFailed(
                f"Broker {node} of {self.settings} is not known (it may be down)."
            )
        connection = self._opened(broker.host, broker.port)
        try:
            for api in needed:
                connection.version_of(api)
        except BrokerError:
            connection.close()
            raise
        return connection

    def _opened(self, host: str, port: int) -> Connection:
        held = self._held.get((host, port))
        if held is not None and time.monotonic() < held.until:
            raise held.error.with_traceback(None)
        connection = Connection(host, port, self.settings)
        try:
            connection.open()
        except AccessFailed as error:
            first, most = _REFUSED_WAITS_S
            wait = first if held is None else min(held.wait * 2, most)
            self._held[host, port] = _Held(error, wait, time.monotonic() + wait)
            raise
        self._held.pop((host, port), None)
        return connection

    def connection(self, node: int) -> Connection:
        """The control connection to a broker; dialled when first used."""
        existing = self._connections.get(node)
        if existing is not None and existing.is_open:
            return existing
        self._connections[node] = connection = self.dial(node)
        return connection

    def refusal(self, topic: str, partition: int) -> AccessFailed | None:
        """Why the leader of a partition (if it is not known: any broker) has just not let us in; None if none said so lately."""
        info = self.topics.get(topic)
        part = None if info is None else info.partitions.get(partition)
        leader = None if part is None else self.brokers.get(part.leader)
        asked = self._addresses() if leader is None else [(leader.host, leader.port)]
        now = time.monotonic()
        held = [self._held[at] for at in asked if at in self._held and now < self._held[at].until]
        return held[0].error if held and len(held) == len(asked) else None

    def any_connection(self) -> Connection:
        """A connection to whichever broker answers: known ones first, then the bootstrap addresses."""
        for connection in self._connections.values():
            if connection.is_open:
                return connection
        if self._bootstrap is not None and self._bootstrap.is_open:
            return self._bootstrap
        broken: ConnectionFailed | None = None
        refused: AccessFailed | None = None
        for host, port in self._addresses():
            try:
                self._bootstrap = self._opened(host, port)
            except ConnectionFailed as error:
                broken = error
            except AccessFailed as error:
                refused = error
            else:
                return self._bootstrap
        if refused is not None:  # says more than that others cannot be reached
            raise refused
        cause = broken.message if broken is not None else "no address is known"
        raise ConnectionFailed(
            f"No broker of {self.settings} can be reached. {cause}",
            "Check bootstrap.servers, the network, and that the cluster is up.",
        )

    def _addresses(self) -> list[tuple[str, int]]:
        known = [(broker.host, broker.port) for broker in self.brokers.values()]
        random.shuffle(known)
        return known + [address for address in self.settings.bootstrap if address not in known]

    # -- calls --------------------------------------------------------------------------------

    def call_any(self, request: Any, most: int | None = None) -> Any:
        """Ask whichever broker answers; a connection that breaks is replaced once."""
        return self._ask(self.any_connection, request, most, tries=2)

    def call_node(self, node: int, request: Any, most: int | None = None) -> Any:
        return self._ask(lambda: self.connection(node), request, most, tries=1)

    def _ask(
        self, connect: Callable[[], Connection], request: Any, most: int | None, tries: int
    ) -> Any:
        """Ask on a connection; where that breaks, on another one, up to so many `tries`.

        A broker may offer an API and close the connection on it, or never answer. One that we can do without (`Api.patience`)
        counts as missing there for a while if that happens twice, and the broker answers something else in between.
        """
        api = APIS[request.API_KEY]
        is_optional = api.patience is not None
        connection = connect()
        try:
            return self._call(connection, api, request, most)
        except ConnectionFailed:
            if is_optional and self._is_there(connection):
                return self._ask_again(connection, api, request, most)
            if tries < 2:
                raise
        return self._call(connect(), api, request, most)

    def _ask_again(self, broken: Connection, api: Api, request: Any, most: int | None) -> Any:
        """Ask the same broker on another connection."""
        connection = self._opened(broken.host, broken.port)
        try:
            return self._call(connection, api, request, most)
        except ConnectionFailed as error:
            if self._is_there(connection):
                raise self._unanswered(connection, api, error) from error
            raise
        finally:
            connection.close()

    def _call(self, connection: Connection, api: Api, request: Any, most: int | None) -> Any:
        at = connection.host, connection.port, api.key
        without = self._without.get(at)
        if without is not None and time.monotonic() < without.until:
            raise without.error.with_traceback(None)
        answer = connection.call(request, api.patience, most)
        self._without.pop(at, None)
        return answer

    def _unanswered(self, connection: Connection, api: Api, error: ConnectionFailed) -> BrokerError:
        """Take an API of a broker for missing; the first time it may only be slow."""
        at = connection.host, connection.port, api.key
        kind = BrokerError if at in self._without else Unanswered
        found = kind(
            messages.UNSUPPORTED_VERSION,
            "UNSUPPORTED_VERSION",
            f"Broker {connection.host}:{connection.port} of {self.settings} offers {api.name}, and does not answer it: "
            f"{error.message} It counts as missing for {_WITHOUT_S / 60:.0f} min.",
            api.without,
        )
        log.warning("%s", found)
        self._without[at] = _Without(found, time.monotonic() + _WITHOUT_S)
        return found

    def _is_there(self, connection: Connection) -> bool:
        """Whether a broker whose connection has just broken answers Metadata on another one."""
        again = Connection(connection.host, connection.port, self.settings)
        try:
            again.open()
            probe = messages.MetadataRequest(topics=[], allow_auto_topic_creation=False)
            again.call(probe, _PROBE_S)
        except KafkaError:
            return False
        finally:
            again.close()
        return True

    def call_controller(self, request: Any, most: int | None = None) -> Any:
        if self.controller not in self.brokers:
            self.refresh([])
        return self.call_node(self.controller, request, most)

    def retrying(self, action: Callable[[], T], deadline: float) -> T:
        """Repeat while the error's flag says that it may pass, until `deadline` (monotonic). More than three tries are logged."""
        waits = back_off(self.settings.retry_backoff, self.settings.retry_backoff_max)
        for tries, wait in enumerate(waits, 1):
            try:
                return action()
            except KafkaError as error:
                left = deadline - time.monotonic()
                if not error.retriable or wait > left:
                    raise
                if tries == QUIET_TRIES + 1:
                    log.warning(
                        "%s %d tries so far, next try in %.1f s, at most %.0f s more.",
                        error,
                        tries,
                        wait,
                        left,
                    )
                time.sleep(wait)
        raise AssertionError  # back_off never ends

    # -- metadata -----------------------------------------------------------------------------

    def refresh(self, topics: Collection[str] | None) -> None:
        """Read brokers and these topics anew (None: all topics). Topics that are gone leave `topics`."""
        if topics is None:
            self._take(self._metadata(None), is_whole=True)
            return
        for part in list(cut(list(topics), _NAMES)) or [()]:
            self._take(self._metadata(part), is_whole=False)

    def _metadata(self, topics: Sequence[str] | None) -> Any:
        topic = messages.MetadataRequest.MetadataRequestTopic
        wanted = None if topics is None else [topic(name=name) for name in topics]
        return self.call_any(
            messages.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        )

    def _take(self, answer: Any, *, is_whole: bool) -> None:
        """Learn from a Metadata answer, about all topics (`is_whole`) or some."""
        self.brokers = {
            b.node_id: Broker(b.node_id, b.host, b.port, b.rack) for b in answer.brokers
        }
        self.controller = answer.controller_id
        for node in [node for node in self._connections if node not in self.brokers]:
            self._connections.pop(node).close()
        if is_whole:
            self.topics = {}
        for topic in answer.topics:
            if topic.name is None or len(topic.name) > _LONGEST_NAME:  # no topic of Kafka's
                continue
            self._hidden.discard(topic.name)
            if topic.error_code == messages.NONE:
                self.topics[topic.name] = _topic_info(topic)
                continue
            self.topics.pop(topic.name, None)
            if topic.error_code == messages.TOPIC_AUTHORIZATION_FAILED:
                self._hidden.add(topic.name)

    def cluster_id(self) -> str:
        """The id that the cluster gave itself; empty if it has none."""
        return str(self._metadata([]).cluster_id or "")

    def is_hidden(self, name: str) -> bool:
        """Whether the last refresh that asked for a topic was told that we may not see it."""
        return name in self._hidden

    def topic(self, name: str) -> TopicInfo:
        """A topic from the last refresh; an error if it was not there."""
        info = self.topics.get(name)
        if info is None and self.is_hidden(name):
            raise BrokerError(
                messages.TOPIC_AUTHORIZATION_FAILED,
                "TOPIC_AUTHORIZATION_FAILED",
                f"Topic {name} on {self.settings} is not shown to us: TOPIC_AUTHORIZATION_FAILED.",
                sentence(needs("Describe", "topic", name, self.settings.security)),
                retriable=True,
            )
        if info is None:
            raise BrokerError(
                messages.UNKNOWN_TOPIC_OR_PARTITION,
                "UNKNOWN_TOPIC_OR_PARTITION",
                f"Topic {name} is not on {self.settings}, or not visible to us.",
                "It may not have been created yet, or Describe on it is not allowed.",
                retriable=True,
            )
        return info

    def leader(self, topic: str, partition: int) -> PartitionInfo:
        """The leader of a partition at the last refresh; a retriable error if there was none."""
        info = self.topic(topic).partitions.get(partition)
        if info is None or info.leader < 0 or info.leader not in self.brokers:
            raise BrokerError(
                5,
                "LEADER_NOT_AVAILABLE",
                f"Partition {topic}-{partition} on {self.settings} has no leader right now.",
                "Check that the brokers holding its replicas are up.",
                retriable=True,
            )
        return info

    def find_leader(self, topic: str, partition: int) -> PartitionInfo:
        """The leader of a partition, looked up again where the last refresh had none: else there would be none for ever."""
        try:
            return self.leader(topic, partition)
        except BrokerError:
            self.refresh([topic])
            return self.leader(topic, partition)


def _topic_info(topic: Any) -> TopicInfo:
    raw = getattr(topic, "topic_id", None)
    topic_id = raw.bytes if raw is not None else NO_TOPIC_ID
    partitions = {
        p.partition_index: PartitionInfo(
            p.partition_index,
            p.leader_id,
            -1 if p.leader_epoch is None else p.leader_epoch,
            tuple(p.replica_nodes),
        )
        for p in topic.partitions
    }
    return TopicInfo(topic.name, topic_id, bool(topic.is_internal), partitions)
