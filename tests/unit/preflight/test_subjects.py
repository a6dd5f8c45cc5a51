"""Files and the flows they say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkmirror.config.connector_files import read_connector
from sparkmirror.config.flows import MirrorMakerConfig
from sparkmirror.errors import ConfigError
from sparkmirror.preflight.findings import Level
from sparkmirror.preflight.flow import connector_class
from sparkmirror.preflight.key_rules import connector_findings, mm2_findings
from sparkmirror.preflight.subjects import connector_subject, read_subject

_MM2 = """
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
A->B.topics = orders
"""
_WORKER = """
bootstrap.servers = b:9092
group.id = connect
key.converter = org.apache.kafka.connect.converters.ByteArrayConverter
value.converter = org.apache.kafka.connect.converters.ByteArrayConverter
config.storage.topic = configs
offset.storage.topic = offsets
status.storage.topic = status
producer.request.timeout.ms = 1000
sesion.timeout.ms = 10000
"""
_CONNECTOR = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "a:9092",
    "target.cluster.bootstrap.servers": "b:9092",
}


def _written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_an_mm2_file(tmp_path: Path) -> None:
    subject = read_subject([_written(tmp_path / "mm2.properties", _MM2)], None)
    there, back = subject.flows
    assert (there.name, back.name) == ("A->B", "B->A")
    assert there.copying is not None
    assert there.checkpointing is not None
    assert there.beating is not None
    assert there.source is not None
    assert there.source.bootstrap == (("a", 9092),)
    assert there.worker is not None
    assert there.worker.alias == "B"
    assert (back.copying, back.source) == (None, None)
    assert back.beating is not None
    names = there.names()
    assert names.worker_group == "A-mm2"
    assert "mm2-offsets.A.internal" in names.worker_topics


def test_three_connectors_of_one_flow(tmp_path: Path) -> None:
    worker = _written(tmp_path / "connect.properties", _WORKER)
    files = []
    for kind in ("Source", "Checkpoint", "Heartbeat"):
        config = {**_CONNECTOR, "connector.class": f"Mirror{kind}Connector"}
        document = {"name": f"mm2-{kind}", "config": config}
        files.append(_written(tmp_path / f"{kind}.json", json.dumps(document)))
    subject = read_subject(files, worker)
    (flow,) = subject.flows
    assert flow.copying is not None
    assert flow.checkpointing is not None
    assert flow.beating is not None
    assert flow.worker is not None
    (notes,) = [s for s in subject.sections if s.title.endswith("connect.properties")]
    said = notes.findings[0].message
    assert (
        said == "sesion.timeout.ms is not a setting of a worker. Did you mean session.timeout.ms?"
    )


def test_two_connectors_of_a_kind_are_two_flows(tmp_path: Path) -> None:
    files = [
        _written(tmp_path / f"{n}.json", json.dumps({"name": n, "config": _CONNECTOR}))
        for n in "ab"
    ]
    assert len(read_subject(files, None).flows) == 2


def test_a_worker_alone(tmp_path: Path) -> None:
    subject = read_subject([_written(tmp_path / "connect.properties", _WORKER)], None)
    (flow,) = subject.flows
    assert flow.title == "worker"
    assert {one.part for one in flow.privileges()} == {"worker"}


def test_a_connector_whose_target_nobody_names() -> None:
    props = {k: v for k, v in _CONNECTOR.items() if not k.startswith("target.cluster.boot")}
    with pytest.raises(ConfigError, match=r"does not say where its target cluster is\..*--worker"):
        connector_subject({"name": "c", **props}, None, "x")


def test_where_a_java_worker_would_write(tmp_path: Path) -> None:
    worker = _written(tmp_path / "w.properties", _WORKER.replace("b:9092", "a:9092"))
    file = _written(tmp_path / "c.json", json.dumps({"name": "c", "config": _CONNECTOR}))
    subject = read_subject([file], worker)
    told = [f for s in subject.sections for f in s.findings if f.check == "worker"]
    assert told[0].level is Level.NOTE
    assert "producer.override.bootstrap.servers" in told[0].remedy


def test_masked_secrets_are_said() -> None:
    props = {"name": "c", **_CONNECTOR, "source.cluster.ssl.key.password": "[hidden]"}
    subject = connector_subject(props, None, "connector c")
    told = [f.message for f in subject.sections[0].findings if f.check == "secrets"]
    assert told == [
        "source.cluster.ssl.key.password: the worker gives no secrets away, so logging in cannot be checked."
    ]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.properties", "foo = bar\n", "is neither an mm2.properties"),
        ("x.json", '{"connector.class": "org.Foo"}', "connector.class=org.Foo is not a connector"),
        ("x.properties", "clusters = A,B\n", "No flow is enabled"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read_subject([_written(tmp_path / name, text)], None)
    with pytest.raises(ConfigError, match="does not exist"):
        read_subject([tmp_path / "nothing"], None)


_SCENARIOS = Path(__file__).parents[2] / "broker" / "scenarios"


@pytest.mark.parametrize(
    "path",
    [
        path
        for path in sorted(_SCENARIOS.rglob("*"))
        if path.suffix == ".json" or (path.name.startswith("mm2") and path.suffix == ".properties")
    ],
    ids=lambda path: str(path.relative_to(_SCENARIOS)),
)
def test_files_of_users_have_no_keys_to_complain_about(path: Path) -> None:
    props = read_connector(path)
    if "connector.class" in props:
        found = connector_findings(props, connector_class(props))
    else:
        found = mm2_findings(props, MirrorMakerConfig(props).clusters)
    assert [str(one) for one in found if one.level > Level.NOTE] == []
