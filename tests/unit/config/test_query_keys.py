"""The keys of a query: what they say, what is wrong with them, and how they come to a flow."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.checkpoint import CheckpointConfig
from sparkmirror.config.flows import MirrorMakerConfig, SourceAndTarget
from sparkmirror.config.heartbeat import HeartbeatConfig
from sparkmirror.config.properties import read_properties
from sparkmirror.config.query import QUERY_KEYS, DeadLetterConfig, QueryConfig, query_problems
from sparkmirror.config.source import SourceConfig
from sparkmirror.errors import ConfigError

SQL = "transform.sql"
AB, BA = SourceAndTarget("A", "B"), SourceAndTarget("B", "A")
FILE = {
    "clusters": "A,B",
    "A.bootstrap.servers": "a:1",
    "B.bootstrap.servers": "b:1",
    "A->B.enabled": "true",
    "B->A.enabled": "true",
}
LEAST = {
    "name": "m",
    "connector.class": "MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
}


def parsed(**props: str) -> QueryConfig:
    found = QueryConfig.parse({SQL: "SELECT *", **_dotted(props)})
    assert found is not None
    return found


def _dotted(props: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "."): value for key, value in props.items()}


def said(**props: str) -> dict[str, str]:
    return {problem.key: problem.message for problem in query_problems(_dotted(props))}


def test_without_a_query_there_is_none() -> None:
    assert QueryConfig.parse({}) is None
    assert QueryConfig.parse({SQL: "  ", "transform.topics": "a"}) is None


def test_what_holds_unless_it_is_said_otherwise() -> None:
    query = parsed()
    assert (query.sql, query.topics, query.functions) == ("SELECT *", (".*",), ())
    assert (query.interval_ms, query.timeout_ms, query.memory_mb) == (300, 60_000, 512)
    assert not query.may_vary
    assert DeadLetterConfig.parse({}) == DeadLetterConfig("", 3, False, False)


def test_where_dead_letters_go_is_known_without_a_query() -> None:
    given = {
        "errors.deadletterqueue.topic.name": " dead ",
        "errors.deadletterqueue.topic.replication.factor": "1",
        "errors.deadletterqueue.context.headers.enable": "true",
    }
    assert DeadLetterConfig.parse(given) == DeadLetterConfig("dead", 1, True, True)


def test_what_is_said() -> None:
    query = parsed(
        transform_topics="orders, clicks.*",
        transform_functions="a.b:c, d:e",
        transform_nondeterministic="allow",
    )
    assert query.functions == ("a.b:c", "d:e")
    assert query.may_vary
    wanted = {"orders": True, "orders2": False, "clicks-eu": True, "x": False}
    assert {topic: query.asks(topic) for topic in wanted} == wanted


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        " SELECT 1 ;",
        "SELECT 1;;\n",
        "\tSELECT 1 ; ",
        "SELECT 1; -- that was it",
        "SELECT 1; -- that's it; really\n/* and; /* that */ too */ ; \n",
    ],
)
def test_blanks_and_a_semicolon_at_the_end_do_not_count(sql: str, tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text(sql)
    for props in ({SQL: sql}, {"transform.sql.file": str(file)}):
        found = QueryConfig.parse(props)
        assert found is not None
        assert found.sql == "SELECT 1"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT ';' -- no; end",
        "SELECT 'it''s; -- ' AS value",
        r"SELECT '\'; -- ' AS value",
        'SELECT "; -- " AS value',
        "SELECT `; -- ` AS value",
        "SELECT 1 /* ; */ /*+ hint */ FROM records",
        "SELECT 1; SELECT 2",
        "SELECT 1; /* is not closed",
        "SELECT 1; 'is not closed",
        "-- nothing; at all",
    ],
)
def test_a_semicolon_elsewhere_is_left_to_spark(sql: str) -> None:
    assert parsed(transform_sql=sql).sql == sql
    if not sql.endswith(("closed", "-- no; end", "at all")):
        assert parsed(transform_sql=f"{sql}; -- end").sql == sql


def test_a_backslash_in_a_raw_text_stands_for_itself() -> None:
    sql = r"SELECT r'\' AS value, colr'\';' AS key"
    assert parsed(transform_sql=f"{sql}; -- '").sql == sql


def test_a_comment_before_the_semicolon_stays() -> None:
    assert parsed(transform_sql="SELECT 1 -- why\n; -- end").sql == "SELECT 1 -- why"


def test_a_file_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text("SELECT value -- ü\nFROM records\n", encoding="utf-8")
    found = QueryConfig.parse({"transform.sql.file": str(file)})
    assert found is not None
    assert found.sql == "SELECT value -- ü\nFROM records"


def test_a_file_that_cannot_be_used_is_told(tmp_path: Path) -> None:
    empty, odd = tmp_path / "empty.sql", tmp_path / "odd.sql"
    empty.write_text(" \n")
    odd.write_bytes(b"SELECT \xff")
    for file, words in (
        (empty, "is empty"),
        (odd, "cannot be read"),
        (tmp_path, "no regular file"),
    ):
        assert words in said(transform_sql_file=str(file))["transform.sql.file"]
        with pytest.raises(ConfigError, match=words):
            QueryConfig.parse({"transform.sql.file": str(file)})


def test_only_one_query_can_be_given(tmp_path: Path) -> None:
    file = tmp_path / "q.sql"
    file.write_text("SELECT 1")
    found = said(transform_sql="SELECT 2", transform_sql_file=str(file))
    assert found == {
        "transform.sql.file": "Both transform.sql and transform.sql.file are given; only one can be."
    }


def test_a_pattern_that_is_none_is_told() -> None:
    assert "transform.topics" in said(transform_sql="SELECT 1", transform_topics="a[")
    assert said(transform_sql="SELECT 1", transform_topics="a, b.*") == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("transform.interval.ms", "-1"),
        ("transform.interval.ms", "soon"),
        ("transform.timeout.ms", "0"),
        ("transform.memory.mb", "1"),
        ("transform.nondeterministic", "maybe"),
        ("errors.deadletterqueue.context.headers.enable", "perhaps"),
    ],
)
def test_values_of_the_wrong_kind_are_refused(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        SourceConfig.parse({**LEAST, SQL: "SELECT 1", key: value})


def test_no_key_of_a_query_is_shown_by_a_java_worker_or_missed_by_the_page() -> None:
    assert all(key.hidden and key.doc.startswith("Ours. ") for key in QUERY_KEYS)


# -- mm2.properties -----------------------------------------------------------------------------------------


def query_of(pair: SourceAndTarget, properties: dict[str, str]) -> str | None:
    config = MirrorMakerConfig({**FILE, **properties}, {})
    query = SourceConfig.parse(config.connector_config(pair, "source")).query
    return None if query is None else query.sql


def test_a_query_counts_for_one_flow_or_for_all() -> None:
    assert query_of(AB, {f"A->B.{SQL}": "SELECT 1"}) == "SELECT 1"
    assert query_of(BA, {f"A->B.{SQL}": "SELECT 1"}) is None
    both = {SQL: "SELECT 2", f"A->B.{SQL}": "SELECT 1"}
    assert (query_of(AB, both), query_of(BA, both)) == ("SELECT 1", "SELECT 2")


@given(st.sampled_from([key.name for key in QUERY_KEYS]), st.sampled_from(["", "A->B."]))
def test_every_key_reaches_the_source_connector_and_harms_no_other(key: str, flow: str) -> None:
    values = {"BOOLEAN": "true", "STRING": "allow", "LIST": "a", "LONG": "100", "INT": "64"}
    kinds = {each.name: each.type.name for each in QUERY_KEYS}
    value = values.get(kinds[key], "1")
    config = MirrorMakerConfig({**FILE, f"{flow}{key}": value}, {})
    assert config.unused() == []
    assert config.connector_config(AB, "source")[key] == value
    assert config.pairs() == [AB, BA]
    CheckpointConfig.parse(config.connector_config(AB, "checkpoint"))
    HeartbeatConfig.parse(config.connector_config(AB, "heartbeat"))


def test_a_slip_of_the_pen_is_told() -> None:
    config = MirrorMakerConfig({**FILE, "A->B.transform.sq": "SELECT 1"}, {})
    assert config.unused() == [
        "A->B.transform.sq is ignored: no connector knows it. Did you mean transform.sql?"
    ]


def test_references_are_resolved(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("salt=pepper\n")
    sql = f"SELECT sha2(concat('${{file:{secrets}:salt}}', CAST(key AS STRING)), 256) AS key"
    providers = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    }
    found = query_of(AB, {f"A->B.{SQL}": sql, **providers})
    assert found == "SELECT sha2(concat('pepper', CAST(key AS STRING)), 256) AS key"


def test_a_query_over_several_lines(tmp_path: Path) -> None:
    """A properties file goes on in the next line behind a backslash, without the blanks at its beginning."""
    file = tmp_path / "mm2.properties"
    lines = [f"{key} = {value}" for key, value in FILE.items()]
    lines += [
        f"A->B.{SQL} = SELECT regexp_replace(CAST(value AS STRING), '[a-z]+\\\\\\\\.x', '#') AS value \\",
        "    FROM records \\",
        "    WHERE get_json_object(CAST(value AS STRING), '$.country') = 'de'",
        "A->B.topics = orders",
    ]
    file.write_text("\n".join(lines) + "\n")
    found = query_of(AB, dict(read_properties(file)))
    assert found == (
        "SELECT regexp_replace(CAST(value AS STRING), '[a-z]+\\\\.x', '#') AS value "
        "FROM records WHERE get_json_object(CAST(value AS STRING), '$.country') = 'de'"
    )


def test_a_file_that_is_not_text_is_not_quoted(tmp_path: Path) -> None:
    file = tmp_path / "query.sql"
    key = "transform.sql.file"
    file.write_bytes(b"SELECT secret\xff\xfe")
    with pytest.raises(ConfigError) as refused:
        QueryConfig.parse({key: str(file)})
    assert str(refused.value).startswith(f"{key}={file} cannot be read: it is not UTF-8.")
    assert "0xff" not in str(refused.value)
    assert "position" not in str(refused.value)
