"""Options of the data source and the flows that they name."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from sparkmirror.errors import ConfigError
from sparkmirror.tables.flows import read_flows
from sparkmirror.tables.source import FlowPartition, TableOptions, TableReader

TWO = """
clusters = A, B, C
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
A->B.enabled = true
A->B.topics = orders
B->C.enabled = true
C.security.protocol = SASL_PLAINTEXT
C.sasl.mechanism = PLAIN
C.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{login}";
"""
CONNECTOR = """
name = copy-orders
connector.class = MirrorSourceConnector
source.cluster.alias = A
target.cluster.alias = B
source.cluster.bootstrap.servers = a:9092
target.cluster.bootstrap.servers = b:9092
topics = orders
"""
WORKER = """
bootstrap.servers = b:9092
group.id = connect
key.converter = org.apache.kafka.connect.converters.ByteArrayConverter
value.converter = org.apache.kafka.connect.converters.ByteArrayConverter
config.storage.topic = configs
offset.storage.topic = positions
status.storage.topic = statuses
"""
STANDALONE = """
bootstrap.servers = b:9092
key.converter = org.apache.kafka.connect.converters.ByteArrayConverter
value.converter = org.apache.kafka.connect.converters.ByteArrayConverter
offset.storage.file.filename = /var/lib/connect.offsets
"""


def file(directory: Path, text: str, name: str = "mm2.properties") -> Path:
    path = directory / name
    path.write_text(text)
    return path


# -- options --------------------------------------------------------------------------------------


def test_options() -> None:
    found = TableOptions.parse({"file": "f", "table": "lag", "flow": "A->B", "spark.own": "x"})
    assert found == TableOptions(Path("f"), "lag", "A->B", None)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"table": "lag"}, "Option file is missing."),
        ({"file": "f"}, "Option table is missing."),
        ({"file": "f", "table": "lags"}, "There is no table lags."),
        ({"file": "f", "table": "lag", "path": "f"}, "no option path. Use file,"),
    ],
)
def test_wrong_options(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        TableOptions.parse(options)
    assert sentence in str(raised.value)


# -- flows ----------------------------------------------------------------------------------------


def test_one_partition_for_each_flow_and_secrets_only_where_spark_does_not_show_them(
    tmp_path: Path,
) -> None:
    path = file(tmp_path, TWO.format(login="hush-hush"))
    found = TableReader(TableOptions(path, "lag")).partitions()
    assert [str(one) for one in found] == ["FlowPartition(A->B)", "FlowPartition(B->C)"]
    assert "hush" not in repr([one.flow for one in found])
    again = pickle.loads(pickle.dumps(found[1]))  # noqa: S301 - our own
    assert isinstance(again, FlowPartition)
    assert again.flow.settings.target == found[1].flow.settings.target
    assert again.flow.settings.copy.offset_map_topic == "mm2-offset-map.B.internal"
    assert again.flow.settings.store.topic == "mm2-offsets.B.internal"


def test_secrets_of_other_flows_need_not_be_there(tmp_path: Path) -> None:
    path = file(tmp_path, TWO.format(login="${file:/not/there.properties:password}"))
    assert [flow.name for flow in read_flows(path, "A -> B", None)] == ["A->B"]
    with pytest.raises(ConfigError, match=r"not/there"):
        read_flows(path, None, None)


def test_unknown_flows(tmp_path: Path) -> None:
    path = file(tmp_path, TWO.format(login="x"))
    with pytest.raises(ConfigError, match=r"There is no flow A->C in .*, only A->B, B->C\."):
        read_flows(path, "A->C", None)


def test_files_that_are_neither(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        read_flows(tmp_path / "none", None, None)
    with pytest.raises(ConfigError, match=r"neither an mm2\.properties"):
        read_flows(file(tmp_path, WORKER), None, None)


def test_a_connector_knows_its_positions_by_its_worker(tmp_path: Path) -> None:
    path = file(tmp_path, CONNECTOR, "copy-orders.properties")
    (alone,) = read_flows(path, None, None)
    assert (alone.name, alone.has_positions) == ("A->B", False)
    worker = file(tmp_path, WORKER, "worker.properties")
    (found,) = read_flows(path, "A->B", worker)
    assert found.has_positions
    assert (found.settings.store.topic, found.settings.store.connector) == (
        "positions",
        "copy-orders",
    )
    (standalone,) = read_flows(path, None, file(tmp_path, STANDALONE, "standalone.properties"))
    assert "var-lib-connect.offsets" in standalone.settings.store.topic
    with pytest.raises(ConfigError, match="Leave option worker out"):
        read_flows(file(tmp_path, TWO.format(login="x")), None, worker)


# -- what travels ---------------------------------------------------------------------------------


def test_a_keytab_travels_with_the_flow_and_is_not_shown(tmp_path: Path) -> None:
    """An executor need not have the driver's files."""
    keytab = tmp_path / "u.keytab"
    keytab.write_bytes(b"planted-key")
    jaas = f'com.sun.security.auth.module.Krb5LoginModule required useKeyTab="true" keyTab="{keytab}" principal="u";'
    text = TWO.replace("= PLAIN\n", "= GSSAPI\n").replace(
        TWO[TWO.index("C.sasl.jaas.config") :],
        f"C.sasl.jaas.config = {jaas}\nC.sasl.kerberos.service.name = kafka\n",
    )
    (partition,) = TableReader(TableOptions(file(tmp_path, text), "positions", "B->C")).partitions()
    keytab.unlink()
    there: FlowPartition = pickle.loads(pickle.dumps(partition))  # noqa: S301 - as Spark does
    assert there.flow.settings.target.security.files.read(str(keytab)) == b"planted-key"
    assert "planted-key" not in repr(there.flow)


def test_a_keytab_that_is_missing_is_named(tmp_path: Path) -> None:
    jaas = 'com.sun.security.auth.module.Krb5LoginModule required useKeyTab="true" keyTab="/none/u.keytab";'
    text = TWO[: TWO.index("C.sasl.mechanism")] + f"C.sasl.jaas.config = {jaas}\n"
    reader = TableReader(TableOptions(file(tmp_path, text), "lag", "B->C"))
    with pytest.raises(ConfigError, match=r"Cluster C: .*/none/u\.keytab cannot be read"):
        reader.partitions()
