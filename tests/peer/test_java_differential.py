"""Some hundred requests, good, bad and odd, sent to a Connect worker and to ours: the answers are the same, but for a list of
differences that are meant."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
from client_homes import basic_auth_jar
from java_connect import ConnectWorker, JavaConnectWorker
from kafka_tools import NewRecord, create_topic, produce
from our_connect import OurConnectWorker
from replaying import Seen, replay
from rest_differences import DIFFERENCES
from rest_requests import (
    ALICE,
    GUARDED_SETTINGS,
    GUARDED_STEPS,
    SETTINGS,
    SETTINGS_STEPS,
    STEPS,
    Ask,
    Step,
)

from sparkmirror.tools.clusters import KafkaCluster

_WORKERS: tuple[type[ConnectWorker], ...] = (JavaConnectWorker, OurConnectWorker)
# A failed connector stays failed, as Connect has it: what starts by itself cannot be compared.
_COMMON: dict[str, str | None] = {"errors.restart.enabled": "false"}
_ASKS = [step for step in STEPS if isinstance(step, Ask)]
_GUARDED_ASKS = [step for step in GUARDED_STEPS if isinstance(step, Ask)]
_SETTINGS_ASKS = [step for step in SETTINGS_STEPS if isinstance(step, Ask)]


class Both(NamedTuple):
    java: Mapping[str, Seen]
    ours: Mapping[str, Seen]


class _JavaWithBasicAuth(JavaConnectWorker):
    """Java's worker with the extension on its class path."""

    login: ClassVar[Mapping[str, str]] = {"Authorization": ALICE}

    def _command(self, config: Path) -> list[str]:
        found = super()._command(config)
        found[found.index("-cp") + 1] += f":{basic_auth_jar()}"
        return found


class _OursWithBasicAuth(OurConnectWorker):
    login: ClassVar[Mapping[str, str]] = {"Authorization": ALICE}


def _answers(
    cluster: KafkaCluster,
    directory: Path,
    steps: tuple[Step, ...],
    settings: Mapping[str, str],
    workers: tuple[type[ConnectWorker], ...] = _WORKERS,
) -> Both:
    """The answers of both workers, which run one after the other."""
    seen = []
    for kind in workers:
        run = uuid.uuid4().hex[:8]
        create_topic(cluster.bootstrap, f"orders-{run}", partitions=2)
        records = [NewRecord(b"k", b"v", partition=number % 2) for number in range(6)]
        produce(cluster.bootstrap, f"orders-{run}", records)
        with kind(cluster.bootstrap, directory, f"diff-{run}", **_COMMON, **settings) as worker:
            seen.append(replay(worker, steps, run, cluster.bootstrap))
    return Both(*seen)


@pytest.fixture(scope="module")
def answers(peer_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Both:
    return _answers(peer_cluster, tmp_path_factory.mktemp("differential"), STEPS, {})


@pytest.fixture(scope="module")
def settings_answers(peer_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Both:
    directory = tmp_path_factory.mktemp("differential-settings")
    return _answers(peer_cluster, directory, SETTINGS_STEPS, SETTINGS)


@pytest.fixture(scope="module")
def guarded_answers(peer_cluster: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Both:
    directory = tmp_path_factory.mktemp("differential-guarded")
    users, jaas = directory / "users.properties", directory / "jaas.conf"
    users.write_text("alice=s3cret:1\n")
    module = "org.apache.kafka.connect.rest.basic.auth.extension.PropertyFileLoginModule"
    jaas.write_text(f'KafkaConnect {{ {module} required file="{users}"; }};')
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={jaas}")
        workers = (_JavaWithBasicAuth, _OursWithBasicAuth)
        return _answers(peer_cluster, directory, GUARDED_STEPS, GUARDED_SETTINGS, workers)


def _differing(java: Seen, ours: Seen) -> set[str]:
    """What differs: the status, a header by its name, the message of an error, or the body."""
    names = {*java.headers, *ours.headers}
    found = {name for name in names if java.headers.get(name) != ours.headers.get(name)}
    if java.status != ours.status:
        found.add("status")
    if java.body != ours.body:
        found.add(
            "message" if _code(java.body) and _code(java.body) == _code(ours.body) else "body"
        )
    return found


def _code(body: Any) -> int | None:
    return body.get("error_code") if isinstance(body, dict) else None


def _expected(name: str) -> set[str]:
    return {aspect for each in DIFFERENCES if each.covers(name) for aspect in each.aspects}


def _compare(name: str, both: Both) -> None:
    java, ours = both.java[name], both.ours[name]
    assert _differing(java, ours) == _expected(name), f"\nJava: {java}\nours: {ours}"


@pytest.mark.timeout(900)  # the first one replays them all
@pytest.mark.parametrize("name", [ask.name for ask in _ASKS])
def test_the_answer_is_the_same(name: str, answers: Both) -> None:
    _compare(name, answers)


@pytest.mark.parametrize("name", [ask.name for ask in _SETTINGS_ASKS])
def test_the_answer_is_the_same_with_settings(name: str, settings_answers: Both) -> None:
    _compare(name, settings_answers)


@pytest.mark.parametrize("name", [ask.name for ask in _GUARDED_ASKS])
def test_the_answer_is_the_same_with_basic_authentication(name: str, guarded_answers: Both) -> None:
    _compare(name, guarded_answers)


def _all_names() -> Iterator[str]:
    yield from (ask.name for ask in (*_ASKS, *_SETTINGS_ASKS, *_GUARDED_ASKS))


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda each: each.reason[:60])
def test_every_difference_is_of_some_request(difference: Any) -> None:
    assert any(difference.covers(name) for name in _all_names()), "remove it from the list"


def test_there_are_requests_enough() -> None:
    names = list(_all_names())
    assert len(names) >= 150
    assert len(set(names)) == len(names)
