"""Which flow, which records: what a preview is about, as far as no cluster is needed."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.cli_preview import preview
from sparkmirror.dataplane.stream import Piece, Stream
from sparkmirror.errors import ConfigError, SparkMirrorError
from sparkmirror.kafka.fetch import READ_COMMITTED
from sparkmirror.tools.preview_flows import QueryFlow, chosen, local_spark, read_flows
from sparkmirror.tools.preview_sample import cut_to, shares
from tests.unit.making import batch, fetched, record

SQL = "SELECT value FROM records"
MM2 = f"""
clusters = A, B, C
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1
C.bootstrap.servers = c:1
A->B.enabled = true
A->C.enabled = true
A->B.transform.sql = {SQL}
spark.master = yarn
spark.sql.ansi.enabled = false
"""


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    """The command keeps our logger short, which other tests of the process must not see."""
    logger = logging.getLogger("sparkmirror")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.fixture
def mm2(tmp_path: Path) -> Path:
    file = tmp_path / "mm2.properties"
    file.write_text(MM2)
    return file


def test_the_flow_that_has_a_query(mm2: Path) -> None:
    flows = read_flows(mm2, None)
    assert [flow.name for flow in flows] == ["A->B", "A->C"]
    flow = chosen(flows, None, any_will_do=False)
    assert flow.name == "A->B"
    copy = flow.settings().copy
    assert copy.query is not None
    assert copy.query.terms.sql == SQL
    assert copy.remote_name is not None
    assert copy.remote_name("x") == "A.x"
    assert flow.spark == {"spark.master": "local[1]", "spark.sql.ansi.enabled": "false"}


def test_another_query_takes_its_place(mm2: Path) -> None:
    flow = chosen(read_flows(mm2, None), "A->C", any_will_do=True)
    assert not flow.has_query
    query = flow.settings("SELECT * FROM records").copy.query
    assert query is not None
    assert query.terms.sql == "SELECT * FROM records"


def test_a_flow_that_is_not_clear(mm2: Path) -> None:
    flows = read_flows(mm2, None)
    with pytest.raises(ConfigError, match=r"several flows: A->B, A->C\. Say with --flow"):
        chosen(flows, None, any_will_do=True)
    with pytest.raises(ConfigError, match="There is no flow A->D, only A->B, A->C"):
        chosen(flows, "A->D", any_will_do=False)
    with pytest.raises(ConfigError, match="A->C: there is no query"):
        chosen(flows, "A->C", any_will_do=False)
    with pytest.raises(ConfigError, match="A->C: there is no query"):
        chosen([flow for flow in flows if not flow.has_query], None, any_will_do=False)


def test_a_connector(tmp_path: Path) -> None:
    query = tmp_path / "query.sql"
    query.write_text(f"{SQL};\n")
    config = {
        "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
        "source.cluster.alias": "east",
        "target.cluster.alias": "west",
        "source.cluster.bootstrap.servers": "e:1",
        "target.cluster.bootstrap.servers": "w:2",
        "transform.sql.file": str(query),
    }
    file = tmp_path / "orders.json"
    file.write_text(json.dumps({"name": "orders", "config": config}))
    (flow,) = read_flows(file, None)
    assert flow.name == "east->west"
    settings = flow.settings()
    assert settings.copy.query is not None
    assert settings.copy.query.terms.sql == SQL
    assert [*settings.source.bootstrap, *settings.target.bootstrap] == [("e", 1), ("w", 2)]
    beats = {**config, "connector.class": "MirrorHeartbeatConnector"}
    file.write_text(json.dumps(beats))
    with pytest.raises(ConfigError, match="which has no query"):
        read_flows(file, None)
    file.write_text(json.dumps({**config, "target.cluster.bootstrap.servers": ""}))
    with pytest.raises(ConfigError, match="where its target cluster is"):
        read_flows(file, None)


def test_wrong_input(tmp_path: Path, mm2: Path) -> None:
    done = CliRunner().invoke(preview, [str(tmp_path / "nothing")])
    assert isinstance(done.exception, ConfigError)
    as_json = CliRunner().invoke(preview, [str(tmp_path / "nothing"), "--json"])
    assert as_json.exit_code == 2
    assert "does not exist" in json.loads(as_json.output)["error"]
    file = tmp_path / "worker.properties"
    file.write_text("group.id = g\n")
    assert "neither an mm2.properties" in str(CliRunner().invoke(preview, [str(file)]).exception)
    both = CliRunner().invoke(preview, [str(mm2), "--sql", SQL, "--sql-file", str(mm2)])
    assert both.exit_code == 2
    empty = CliRunner().invoke(preview, [str(mm2), "--sql", " "])
    assert isinstance(empty.exception, SparkMirrorError)
    assert empty.exception.exit_code == 2


def test_spark_runs_here() -> None:
    given = {
        "spark.master": "k8s://x",
        "spark.submit.deployMode": "cluster",
        "spark.driver.host": "worker-1",
        "spark.driver.memory": "1g",
        "spark.ui.port": "4040",
    }
    assert local_spark(given) == {"spark.master": "local[1]", "spark.driver.memory": "1g"}


def test_a_flow_does_not_show_its_secrets(mm2: Path) -> None:
    flow: QueryFlow = read_flows(mm2, None)[0]
    assert "transform.sql" not in repr(flow)


# -- records ----------------------------------------------------------------------------------------


@given(st.dictionaries(st.integers(0, 20), st.integers(0, 50)), st.integers(1, 100))
def test_partitions_share_evenly(available: dict[int, int], limit: int) -> None:
    found = shares(available, limit)
    assert sum(found.values()) == min(limit, sum(available.values()))
    assert all(0 < count <= available[number] for number, count in found.items())
    # Who gives less than another by more than one has no more to give.
    most = max(found.values(), default=0)
    assert all(found.get(number, 0) >= min(count, most - 1) for number, count in available.items())


def pieces(*sizes: int) -> list[Piece]:
    stream = Stream(0, READ_COMMITTED)
    found: list[Piece] = []
    start = 0
    for size in sizes:
        rows = [record(start + n) for n in range(size)]
        found += stream.feed(fetched([batch(rows, base=start)]))
        start += size
    return found


@pytest.mark.parametrize("count", [1, 3, 4, 5, 11, 12, 20])
def test_the_first_and_the_last_records_of_pieces(count: int) -> None:
    found = pieces(4, 1, 7)
    offsets = list(range(12))

    def told(cut: list[Piece]) -> list[tuple[int, bytes | None]]:
        return [(offset, row.key) for piece in cut for offset, row in piece.records_with_offsets()]

    whole = [(offset, b"k%d" % offset) for offset in offsets]
    assert told(cut_to(found, count, oldest=True)) == whole[:count]
    assert told(cut_to(found, count, oldest=False)) == whole[-count:]
