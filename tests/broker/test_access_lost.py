"""Access that is lost, or was never there: told in one sentence, tried again without hammering, taken up when it is mended.

Nothing is lost or doubled on the way.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from certificates import Authority, Identity
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from connect_worker import ConnectWorker, worker_properties
from copying import Copying
from copying import Flow as CopyFlow
from kafka_tools import (
    NewRecord,
    consume,
    create_topic,
    end_offsets,
    produce,
    topics,
    wait_for,
)
from running import Mirror, assert_same
from secured import SecuredCluster, secured_cluster

from sparkmirror.dataplane.plan import PartitionPlan
from sparkmirror.formats import status_log
from sparkmirror.formats.status_log import StatusFields, TaskStatusRecord
from sparkmirror.kafka.settings import client_settings
from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
MIRROR = "org.apache.kafka.connect.mirror"
SCRAM = "SCRAM-SHA-512"
REAUTHENTICATE_S = 2.0
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Gates:
    """A secured cluster with two more listeners, whose certificates are expired, and for another host."""

    cluster: SecuredCluster
    others: Authority

    def renew(self, listener: str, identity: Identity) -> None:
        """Give a listener another certificate while the broker runs."""
        prefix = f"listener.name.{listener.lower()}."
        entries = [
            ConfigEntry(prefix + key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in identity.store("PEM").as_keystore().items()
        ]
        node = str(next(iter(self.cluster.cluster.nodes)))
        resource = ConfigResource(ResourceType.BROKER, node, incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.cluster.open_bootstrap})
        admin.incremental_alter_configs([resource])[resource].result(30)

    def refused_logins(self) -> int:
        """How many connections the brokers have refused so far."""
        nodes = self.cluster.cluster.nodes
        logs = (self.cluster.cluster.log(node).read_text() for node in nodes)
        return sum(len(re.findall("Failed authentication with", text)) for text in logs)


@pytest.fixture(scope="module")
def gates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gates]:
    directory = tmp_path_factory.mktemp("gates")
    others = Authority(directory / "others", "other-ca")
    expired = others.issue("expired", valid=(-9, -2))
    elsewhere = others.issue("elsewhere", ["kafka.elsewhere.example"])
    properties = {
        "connections.max.reauth.ms": str(int(REAUTHENTICATE_S * 1000)),
        "ssl.allow.dn.changes": "true",
        "ssl.allow.san.changes": "true",
        **others.listener("EXPIRED", expired),
        **others.listener("ELSEWHERE", elsewhere),
    }
    with secured_cluster(
        directory, listeners={"EXPIRED": "SSL", "ELSEWHERE": "SSL"}, properties=properties
    ) as cluster:
        yield Gates(cluster, others)


class Mirrored:
    """A topic of the secured cluster, its copy on the open one, and the source connector for it."""

    def __init__(self, gates: Gates, target: KafkaCluster, topic: str) -> None:
        self._source, self._target = gates.cluster.cluster, target
        self._open = gates.cluster.open_bootstrap
        self.topic = self.name = topic
        self.count = 0
        create_topic(self._open, topic, 2)
        self.produce(100)

    def produce(self, count: int) -> None:
        rows = range(self.count, self.count + count)
        self.count += count
        produce(self._open, self.topic, [NewRecord(b"%d" % n, b"v%d" % n, n % 2) for n in rows])

    def config(self, client: Mapping[str, str], kind: str = "Source") -> dict[str, str]:
        return {
            "connector.class": f"{MIRROR}.Mirror{kind}Connector",
            "source.cluster.alias": "A",
            "target.cluster.alias": "B",
            "target.cluster.bootstrap.servers": self._target.bootstrap,
            **{f"source.cluster.{name}": value for name, value in client.items()},
            "topics": self.topic,
            "tasks.max": "2",
            "refresh.topics.interval.seconds": "2",
            "heartbeats.replication.enabled": "false",
            "offset-syncs.topic.replication.factor": "1",
            "errors.restart.backoff.max.ms": "10000",
        }

    def is_copied(self) -> bool:
        remote = f"A.{self.topic}"
        known = remote in topics(self._target.bootstrap)
        return known and sum(end_offsets(self._target.bootstrap, remote).values()) >= self.count

    def check(self) -> None:
        """All is copied, once and in order."""
        wait_for(f"{self.topic}: all copied", self.is_copied, PATIENCE_S)
        remote = f"A.{self.topic}"
        assert assert_same(self._source, self.topic, self._target, remote) == self.count


def login(cluster: SecuredCluster, user: str, secret: str) -> dict[str, str]:
    return cluster.client("SASL_SSL", SCRAM, username=user, password=secret)


def worker_on(target: KafkaCluster, directory: Path, group: str) -> ConnectWorker:
    providers = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }
    return ConnectWorker(directory, worker_properties(target.bootstrap, group) | providers)


def failures(worker: ConnectWorker, connector: str) -> list[str]:
    """The traces of all of a connector that has failed."""
    status = worker.status(connector)
    parts = [] if status is None else [status["connector"], *status["tasks"]]
    return [part["trace"] for part in parts if part["state"] == "FAILED"]


def running_tasks(bootstrap: str) -> set[int]:
    """The source tasks of dedicated mode that run, by their last word in the status topic."""
    last: dict[int, str] = {}
    for row in consume(bootstrap, "mm2-status.A.internal"):
        match status_log.decode(row.key, row.value):
            case TaskStatusRecord("MirrorSourceConnector", task, StatusFields(state)):
                last[task] = state
    return {task for task, state in last.items() if state == "RUNNING"}


def all_failed(worker: ConnectWorker, connector: str, count: int) -> bool:
    """Whether so many tasks have failed; the connector itself fails a little later, and is started again meanwhile."""
    status = worker.status(connector)
    states = [] if status is None else [task["state"] for task in status["tasks"]]
    return states == ["FAILED"] * count


def goes_on_in(said: str) -> bool:
    """Whether both tasks are told to go on, or were started anew since the worker came back into its group."""
    going = all(f"Task MirrorSourceConnector-{task} goes on." in said for task in (0, 1))
    return going or "and 2 task(s) since generation" in said


@pytest.mark.slow
def test_a_copy_task_waits_for_a_revoked_user(
    gates: Gates, target_cluster: KafkaCluster, unique: Unique
) -> None:
    topic, user = unique("orders"), unique("user")
    flow = Mirrored(gates, target_cluster, topic)
    create_topic(target_cluster.bootstrap, f"A.{topic}", 2)
    gates.cluster.add_user(user, "user-secret", [SCRAM])
    client = login(gates.cluster, user, "user-secret")
    inner = CopyFlow(gates.cluster.cluster, target_cluster, topic)
    plan = inner.plan([PartitionPlan(topic, number, f"A.{topic}") for number in (0, 1)])
    with Copying(replace(plan, source=client_settings("A", client))) as task:
        task.until("the first records", flow.is_copied)
        gates.cluster.remove_user(user)
        flow.produce(50)

        def told() -> set[str]:
            return {row.error for row in task.task._ledger() if row.error}

        task.until("it stands still", lambda: bool(told()))
        (sentence,) = told()
        assert f"did not let us in with {SCRAM} as {user}" in sentence
        assert "user-secret" not in sentence
        gates.cluster.add_user(user, "user-secret", [SCRAM])
        task.until("it goes on", flow.is_copied)
        task.until("nothing stands still", lambda: not told())
    inner.close()
    flow.check()


@pytest.mark.slow
def test_each_refusal_is_told_and_mended(
    gates: Gates, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    cluster, user = gates.cluster, unique("user")
    trust = tmp_path / "trust.pem"
    gates.others.write_trust(trust, "PEM")
    cluster.add_user(user, "the-right-one", [SCRAM])
    trusting = gates.others.truststore()
    clients = {
        "password": login(cluster, user, "the-wrong-one"),
        "expired": {**cluster.client("EXPIRED"), **trusting},
        "elsewhere": {**cluster.client("ELSEWHERE"), **trusting},
        "authority": {**cluster.client("SSL"), "ssl.truststore.location": str(trust)},
    }
    sentences = {
        "password": f"did not let us in with {SCRAM} as {user}",
        "expired": "(CN=expired, issued by CN=other-ca) that expired on ",
        "elsewhere": "for kafka.elsewhere.example, not for 127.0.0.1.",
        "authority": f"is not signed by a CA in ssl.truststore.location={trust}.",
    }
    flows = {name: Mirrored(gates, target_cluster, unique(name)) for name in clients}
    before = gates.refused_logins()
    with worker_on(target_cluster, tmp_path, unique("group")) as worker:
        worker.wait_ready()
        for name, flow in flows.items():
            worker.put(flow.name, flow.config(clients[name]))
        for name, flow in flows.items():
            assert sentences[name] in worker.wait_failed(flow.name)
        for flow in flows.values():
            worker.wait_until_says(f"Starting {flow.name} again (attempt 4).", PATIENCE_S)
        # Five tries each so far, at most two connections a try: after a refused certificate it is looked at once more.
        assert gates.refused_logins() - before <= 4 * 5 * 2
        assert not any(flow.is_copied() for flow in flows.values())

        cluster.add_user(user, "the-wrong-one", [SCRAM])  # it is the right one from now on
        gates.renew("EXPIRED", gates.others.issue("expired"))
        gates.renew("ELSEWHERE", gates.others.issue("elsewhere"))
        cluster.authority.write_trust(trust, "PEM")
        for flow in flows.values():
            flow.check()
            worker.wait_running(flow.name, 2)
        assert worker.stop() == 0
    assert "Traceback" not in worker.output
    assert "the-wrong-one" not in worker.output


@pytest.mark.slow
def test_users_revoked_and_secrets_rotated_in_mid_flow(
    gates: Gates, target_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    cluster, alice, bob = gates.cluster, unique("alice"), unique("bob")
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("bob=the-first-secret\n")
    cluster.add_user(alice, "alices-secret", [SCRAM])
    cluster.add_user(bob, "the-first-secret", [SCRAM])
    revoked = login(cluster, alice, "alices-secret")
    reference = f"${{file:{secrets}:bob}}"
    rotated = login(cluster, bob, reference)
    flows = {
        "revoked": Mirrored(gates, target_cluster, unique("revoked")),
        "rotated": Mirrored(gates, target_cluster, unique("rotated")),
    }
    checkpoints = unique("checkpoints")
    with worker_on(target_cluster, tmp_path, unique("group")) as worker:
        worker.wait_ready()
        worker.put(flows["revoked"].name, flows["revoked"].config(revoked))
        worker.put(flows["rotated"].name, flows["rotated"].config(rotated))
        worker.put(checkpoints, flows["revoked"].config(revoked, "Checkpoint"))
        for flow in flows.values():
            wait_for("the first records", flow.is_copied, PATIENCE_S)
        cluster.remove_user(alice)
        cluster.add_user(bob, "the-second-secret", [SCRAM])
        for flow in flows.values():
            flow.produce(500)
        for name, user in {flows["revoked"].name: alice, flows["rotated"].name: bob}.items():
            wait_for(f"{name} fails", partial(all_failed, worker, name, 2), PATIENCE_S)
            for trace in failures(worker, name):
                assert f"did not let us in with {SCRAM} as {user}" in trace
        soon = gates.refused_logins() + 10  # the first follow each other more quickly
        wait_for("some tries", lambda: gates.refused_logins() >= soon, PATIENCE_S)
        before, began = gates.refused_logins(), time.monotonic()
        wait_for("some more tries", lambda: gates.refused_logins() >= before + 10, PATIENCE_S)
        assert time.monotonic() - began > 4.0

        cluster.add_user(alice, "alices-secret", [SCRAM])
        secrets.write_text("bob=the-second-secret\n")
        for flow in flows.values():
            flow.check()
            worker.wait_running(flow.name, 2, PATIENCE_S)
        wait_for("checkpoints go on", lambda: not failures(worker, checkpoints), PATIENCE_S)
        assert worker.get(f"/connectors/{flows['rotated'].name}/config")[
            "source.cluster.sasl.jaas.config"
        ].endswith(f'password="{reference}";')
        assert worker.stop() == 0
    for secret in ("alices-secret", "the-first-secret", "the-second-secret"):
        assert secret not in worker.output


@pytest.mark.slow
def test_the_workers_own_cluster_does_not_let_it_in(
    gates: Gates, source_cluster: KafkaCluster, unique: Unique, tmp_path: Path
) -> None:
    """Dedicated mode with a secured target, where all state is kept."""
    topic, user = unique("orders"), unique("user")
    create_topic(source_cluster.bootstrap, topic, 2)
    remote = f"A.{topic}"
    gates.cluster.add_user(user, "user-secret", [SCRAM])
    client = login(gates.cluster, user, "user-secret")
    keys = {
        "clusters": "A, B",
        "A.bootstrap.servers": source_cluster.bootstrap,
        **{f"B.{name}": value for name, value in client.items()},
        "A->B.enabled": "true",
        "A->B.topics": topic,
        "replication.factor": "-1",
        "tasks.max": "2",
        "emit.heartbeats.enabled": "false",
        # Who was out of its group for longer than its session would wait for itself to come back, as in Connect.
        "B.scheduled.rebalance.max.delay.ms": "0",
    }
    opened = gates.cluster.open_bootstrap
    count = 0

    def send(more: int) -> None:
        nonlocal count
        rows = [NewRecord(b"%d" % n, b"%d" % n, n % 2) for n in range(count, count + more)]
        produce(source_cluster.bootstrap, topic, rows)
        count += more

    def is_copied() -> bool:
        known = remote in topics(opened)
        return known and sum(end_offsets(opened, remote).values()) >= count

    send(100)
    with Mirror(tmp_path, keys) as mirror:
        wait_for("the first records", is_copied, PATIENCE_S)
        gates.cluster.remove_user(user)
        send(500)
        mirror.wait_until_says(f"did not let us in with {SCRAM} as {user}", PATIENCE_S)
        before, began = gates.refused_logins(), time.monotonic()
        wait_for("some more tries", lambda: gates.refused_logins() >= before + 20, PATIENCE_S)
        assert time.monotonic() - began > 4.0
        said = len(mirror.output)
        gates.cluster.add_user(user, "user-secret", [SCRAM])
        wait_for("it goes on", is_copied, PATIENCE_S)
        # That they stood still could not be written: the topic shows them running all the time.
        wait_for("it knows that", lambda: goes_on_in(mirror.output[said:]), PATIENCE_S)
        wait_for("both tasks run", lambda: running_tasks(opened) == {0, 1}, PATIENCE_S)
        assert mirror.stop() == 0
    assert assert_same(source_cluster, topic, gates.cluster.cluster, remote) == count
    assert "user-secret" not in mirror.output


@pytest.mark.slow
def test_a_copy_task_that_was_never_let_in(
    gates: Gates, target_cluster: KafkaCluster, unique: Unique
) -> None:
    """As on an executor which cannot read what the driver can: the driver has made the plan."""
    topic, user = unique("orders"), unique("user")
    flow = Mirrored(gates, target_cluster, topic)
    create_topic(target_cluster.bootstrap, f"A.{topic}", 2)
    inner = CopyFlow(gates.cluster.cluster, target_cluster, topic)
    plan = inner.plan([PartitionPlan(topic, number, f"A.{topic}") for number in (0, 1)])
    client = client_settings("A", login(gates.cluster, user, "user-secret"))
    with Copying(replace(plan, source=client)) as task:

        def told() -> set[str]:
            return {row.error for row in task.task._ledger() if row.error}

        task.until("it stands still", lambda: bool(told()))
        assert f"did not let us in with {SCRAM} as {user}" in "".join(told())
        gates.cluster.add_user(user, "user-secret", [SCRAM])
        task.until("it begins", flow.is_copied)
    inner.close()
    flow.check()


@pytest.mark.slow
def test_a_worker_that_is_not_let_in_ends_with_the_reason(
    gates: Gates, unique: Unique, tmp_path: Path
) -> None:
    user = unique("user")
    client = login(gates.cluster, user, "user-secret")
    properties = worker_properties(client.pop("bootstrap.servers"), unique("group"))
    with ConnectWorker(tmp_path, properties | client) as worker:
        assert worker.wait(PATIENCE_S) == 3
        assert f"did not let us in with {SCRAM} as {user}" in worker.output
        assert "user-secret" not in worker.output
