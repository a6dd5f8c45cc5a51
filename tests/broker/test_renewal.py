"""Logins that end are renewed on the same connection, before the broker closes it (KIP-368)."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

import pytest
from copied import Copied, Unique, numbered
from copying import Copying
from secured import SecuredCluster, secured_cluster

from sparkmirror.errors import AccessFailed
from sparkmirror.kafka import messages
from sparkmirror.kafka.access import sasl
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.settings import ClientSettings, client_settings

_SESSION_S = 2.0
_USERS = {"alice": "alice-secret", "bob": "bob-secret", "carol": "carol-secret"}
_LIMIT = {"connections.max.reauth.ms": str(int(_SESSION_S * 1000))}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    directory = tmp_path_factory.mktemp("renewal")
    with secured_cluster(directory, plain_users=_USERS, properties=_LIMIT) as cluster:
        yield cluster


@pytest.fixture
def properties(secured: SecuredCluster) -> dict[str, str]:
    return secured.client("SASL_SSL", "PLAIN", username="alice", password=_USERS["alice"])


@pytest.fixture
def logins(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When logins happened, of all connections of this process."""
    found: list[float] = []
    authenticate = sasl.authenticate

    def heard(
        settings: ClientSettings,
        host: str,
        exchange: sasl.Exchange,
        versions: Mapping[int, tuple[int, int]],
    ) -> float | None:
        found.append(time.monotonic())
        return authenticate(settings, host, exchange, versions)

    monkeypatch.setattr(sasl, "authenticate", heard)
    return found


def ask(connection: Connection) -> None:
    request = messages.MetadataRequest(topics=[], allow_auto_topic_creation=False)
    assert connection.call(request).brokers


def opened(properties: Mapping[str, str]) -> Connection:
    settings = client_settings("A", properties)
    connection = Connection(*settings.bootstrap[0], settings)
    connection.open()
    return connection


def test_a_connection_in_use_outlives_its_session(
    properties: dict[str, str], logins: list[float]
) -> None:
    connection = opened(properties)
    until = time.monotonic() + 3 * _SESSION_S
    while time.monotonic() < until:
        ask(connection)
        time.sleep(0.02)
    connection.close()
    gaps = [after - before for before, after in pairwise(logins)]
    assert len(gaps) >= 2
    assert all(0.8 * _SESSION_S < gap < 0.99 * _SESSION_S for gap in gaps), gaps


def test_a_connection_that_was_idle_for_longer(
    properties: dict[str, str], logins: list[float]
) -> None:
    connection = opened(properties)
    time.sleep(1.5 * _SESSION_S)  # it is time itself that is tested
    ask(connection)
    connection.close()
    assert len(logins) == 2


def test_a_login_that_is_not_renewed(secured: SecuredCluster) -> None:
    """The user is gone when the session ends: the connection is closed and says why."""
    secured.add_user("bob", _USERS["bob"])
    connection = opened(
        secured.client("SASL_SSL", "SCRAM-SHA-256", username="bob", password=_USERS["bob"])
    )
    ask(connection)
    secured.remove_user("bob")
    with pytest.raises(AccessFailed, match="SCRAM-SHA-256 as bob"):
        until = time.monotonic() + 2 * _SESSION_S
        while time.monotonic() < until:
            ask(connection)
            time.sleep(0.02)
    assert not connection.is_open
    assert isinstance(connection.failure, AccessFailed)


@contextmanager
def load(copied: Copied) -> Iterator[list[int]]:
    """Records all the time; gives how many there are."""
    over, count = threading.Event(), [0]

    def run() -> None:
        while not over.is_set():
            copied.produce(numbered(200, 1000, first=count[0]))
            count[0] += 200
            over.wait(0.02)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield count
    finally:
        over.set()
        thread.join()


def connections(task: Copying) -> list[Connection | None]:
    """Those that records are read from and written to."""
    fetching = task.task._fetcher._channels._channels.values()
    sending = task.task._sender._channels.values()
    return [*(each.connection for each in fetching), *(each.connection for each in sending)]


def secured_flow(secured: SecuredCluster, unique: Unique, properties: Mapping[str, str]) -> Copied:
    """A topic and its copy, read and written with these properties."""
    copied = Copied(secured.cluster, secured.cluster, unique)
    copied.flow.close()
    copied.flow.source = Cluster(client_settings("A", properties))
    copied.flow.target = Cluster(client_settings("B", properties))
    for cluster in (copied.flow.source, copied.flow.target):
        cluster.refresh([copied.topic, copied.remote])
    return copied


def test_a_copy_whose_user_is_removed_goes_on_when_it_is_back(
    secured: SecuredCluster, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    secured.add_user("carol", _USERS["carol"])
    properties = secured.client(
        "SASL_SSL", "SCRAM-SHA-256", username="carol", password=_USERS["carol"]
    )
    copied = secured_flow(secured, unique, properties)
    with copied.copying() as task, load(copied) as count:
        task.until("something came", lambda: copied.end() > 0)
        secured.remove_user("carol")
        sentence = "did not let us in with SCRAM-SHA-256 as carol"
        task.until("it is told", lambda: sentence in caplog.text)
        task.until(
            "the partition stands",
            lambda: any(sentence in why.error for why in task.task._troubles.standing.values()),
        )
        secured.add_user("carol", _USERS["carol"])
        task.until("it goes on", lambda: not task.task._troubles.standing, 120)
        seen = count[0]
        task.until("new records come", lambda: copied.end() > seen, 120)
    with copied.copying() as task:
        copied.until(task, count[0])
    assert copied.arrived() == copied.sent()
    copied.close()


def test_a_busy_copy_renews_its_logins(
    secured: SecuredCluster,
    properties: dict[str, str],
    logins: list[float],
    unique: Unique,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Reading and writing without a pause, for three sessions; no connection breaks."""
    copied = secured_flow(secured, unique, properties)
    with copied.copying() as task, load(copied) as count:
        task.until("something came", lambda: copied.end() > 0)
        opened_before = connections(task)
        begin, until = len(logins), time.monotonic() + 3.5 * _SESSION_S
        task.until("sessions have ended", lambda: time.monotonic() > until)
        assert connections(task) == opened_before
        assert all(each is not None and each.is_open for each in opened_before)
        assert len(logins) - begin >= 3 * len(opened_before)
    with copied.copying() as task:
        copied.until(task, count[0])
    assert "broke" not in caplog.text
    assert copied.arrived() == copied.sent()
    copied.close()
