"""What workers ask of each other: nobody else gets in by it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.config.rest import BASIC_AUTH
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.control.herding import Signature
from sparkmirror.control.operations import Operations
from sparkmirror.control.process import ConnectProcess
from sparkmirror.control.rest.basic_auth import JAAS_KEY, LOGIN_MODULE
from sparkmirror.control.states import ClusterConfig
from sparkmirror.errors import Forbidden, QueryRefused
from tests.unit.control.rest_serving import LOCAL, Client

UNSIGNED = Signature(None, None, b"[]")
COMMON = {
    "bootstrap.servers": "127.0.0.1:1",
    "listeners": LOCAL,
    "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
}
GROUP = {
    "group.id": "g",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "statuses",
}


@contextmanager
def answering(properties: dict[str, str], *, standalone: bool = False) -> Iterator[Client]:
    """The REST server of a worker that is not started itself."""
    with made(properties, standalone=standalone) as process:
        yield Client(process._rest.ports[0])


@contextmanager
def made(properties: dict[str, str], *, standalone: bool = False) -> Iterator[ConnectProcess]:
    process = ConnectProcess(WorkerConfig.parse(COMMON | properties, standalone=standalone))
    process._rest.start()
    try:
        yield process
    finally:
        process._rest.stop()


def methods(call: Client, path: str) -> str:
    return call("OPTIONS", path).headers.get("allow", "")


def login(directory: Path) -> dict[str, str]:
    users, jaas = directory / "users.properties", directory / "jaas.conf"
    users.write_text("")  # an empty file admits everybody: the endpoints are not there even so
    jaas.write_text(f'KafkaConnect {{ {LOGIN_MODULE} required file="{users}"; }};')
    return {"rest.extension.classes": BASIC_AUTH, JAAS_KEY: str(jaas)}


def test_a_standalone_worker_has_no_endpoints_for_others(tmp_path: Path) -> None:
    keys = {"offset.storage.file.filename": str(tmp_path / "offsets")}
    with answering(keys, standalone=True) as call:
        assert call("POST", "/connectors/c/tasks", []).status == 405
        assert call("PUT", "/connectors/c/fence").status == 404


@pytest.mark.parametrize("protocol", ["sessioned", "compatible", "eager"])
@pytest.mark.parametrize("has_login", [False, True])
def test_unsigned_calls_have_an_endpoint_only_where_nobody_logs_in(
    tmp_path: Path, protocol: str, has_login: bool
) -> None:
    keys = GROUP | {"connect.protocol": protocol} | (login(tmp_path) if has_login else {})
    with answering(keys) as call:
        is_there = protocol == "sessioned" or not has_login
        assert ("PUT" in methods(call, "/connectors/c/fence")) is is_there
        assert ("POST" in methods(call, "/connectors/c/tasks")) is is_there


@pytest.mark.parametrize("protocol", ["sessioned", "compatible", "eager"])
def test_a_group_that_does_not_sign_is_told_so(protocol: str) -> None:
    notes = WorkerConfig.parse(COMMON | GROUP | {"connect.protocol": protocol}).notes
    told = [note for note in notes if note.startswith("connect.protocol=")]
    assert bool(told) is (protocol != "sessioned")


class Configs:
    def __init__(self) -> None:
        self.written: list[object] = []

    def snapshot(self) -> ClusterConfig:
        return ClusterConfig(connectors={"c": {}})

    def put_task_configs(self, name: str, configs: object) -> None:
        self.written.append(configs)

    def put_task_count_record(self, name: str, count: int) -> None:
        self.written.append(count)


def operations(configs: Configs, *, may_be_unsigned: bool) -> Operations:
    """Of a leader whose group has agreed on a protocol without keys, whatever its own config says."""
    herder = SimpleNamespace(
        requests=SimpleNamespace(ask=lambda action, timeout: action()),
        group=SimpleNamespace(protocol_version=1, is_leader=True),
        stores=SimpleNamespace(configs=configs),
    )
    return Operations(cast(Any, herder), may_be_unsigned=may_be_unsigned)


def test_a_mixed_group_is_not_believed_where_people_log_in() -> None:
    configs = Configs()
    asked = operations(configs, may_be_unsigned=False)
    with pytest.raises(Forbidden, match="do not sign"):
        asked.put_task_configs("c", [], UNSIGNED)
    with pytest.raises(Forbidden, match="do not sign"):
        asked.fence_zombies("c", UNSIGNED)
    assert configs.written == []
    operations(configs, may_be_unsigned=True).put_task_configs("c", [], UNSIGNED)
    assert configs.written == [[]]


def test_a_call_without_a_signature_is_refused_before_its_body_is_looked_at() -> None:
    asked = operations(Configs(), may_be_unsigned=False)
    with pytest.raises(Forbidden, match="do not sign"):
        asked.require_signed(UNSIGNED)


@pytest.mark.parametrize("has_login", [False, True])
def test_a_worker_with_a_login_believes_no_unsigned_call(tmp_path: Path, has_login: bool) -> None:
    with made(GROUP | (login(tmp_path) if has_login else {})) as process:
        assert process._assembled.operations._may_be_unsigned is not has_login


def test_queries_call_no_function_that_the_workers_file_does_not_list() -> None:
    """Also those that a stored position names."""
    with made(GROUP | {"transform.functions.allowed": "json"}) as process:
        process._spark.may_call("json:dumps")
        with pytest.raises(QueryRefused, match=r"transform\.functions names pip:main"):
            process._spark.may_call("pip:main")
