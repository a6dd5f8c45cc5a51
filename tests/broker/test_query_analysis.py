"""What Spark makes of a query: what is refused and in which words, what may vary, and that every record gets its answer."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import functions

from sparkmirror.dataplane.query import builtins
from sparkmirror.dataplane.query.analysis import Analysed
from sparkmirror.dataplane.query.columns import NUMBER, TYPES
from sparkmirror.dataplane.query.desk import Desk
from sparkmirror.dataplane.query.functions import load
from sparkmirror.dataplane.query.plans import class_of, nodes
from sparkmirror.dataplane.query.terms import QueryLimits, QueryTerms
from sparkmirror.errors import QueryRefused
from sparkmirror.spark.session import SparkSession
from sparkmirror.transforms.record import ConnectRecord

pytestmark = pytest.mark.slow
MEMORY = 1 << 40
RECORDS = [ConnectRecord("t", 0, n, 1_700_000_000_000 + n, b"k", b"%d" % n, []) for n in range(4)]
HAS_TRY_TO_DATE = hasattr(functions, "try_to_date")  # PySpark 4.1
PACKAGE = "functions_in_a_package"
MASKING = """
from pyspark.sql.functions import udf

@udf("int")
def how_long(value):
    return len(value)
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One that starts after a function was looked at without it."""
    path = tmp_path_factory.mktemp("functions")
    (path / PACKAGE).mkdir()
    (path / PACKAGE / "__init__.py").write_text("from .masking import how_long\n")
    (path / PACKAGE / "masking.py").write_text(MASKING)
    sys.path.insert(0, str(path))
    load(f"{PACKAGE}:how_long", MEMORY)
    session = SparkSession({"spark.master": "local[1]"})
    session.start()
    yield session
    session.stop()
    sys.path.remove(str(path))
    for name in (PACKAGE, f"{PACKAGE}.masking"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def desk(spark: SparkSession) -> Iterator[Desk]:
    made = Desk(spark.queries.driver, "A->B", QueryLimits(interval=0.0, memory=MEMORY))
    yield made
    made.close()


def analysed(spark: SparkSession, sql: str, *functions: str) -> Analysed:
    return spark.queries.analyse(QueryTerms(sql, functions, may_vary=True), MEMORY)


def refusal(spark: SparkSession, sql: str, *functions: str) -> str:
    with pytest.raises(QueryRefused) as refused:
        analysed(spark, sql, *functions)
    return refused.value.message


def values(desk: Desk, sql: str, *, may_vary: bool = False) -> list[bytes]:
    """What a query makes of the records, once there is an answer for each."""
    found = desk.ask(desk.prepare(QueryTerms(sql, may_vary=may_vary)), RECORDS)
    assert not found.bad
    return found.given.columns["value"] if found.given else []


def test_a_query_that_keeps_nothing_takes_records_all_the_same(spark: SparkSession) -> None:
    for condition in ("false", "value = NULL"):
        found = analysed(spark, f"SELECT value FROM records WHERE {condition}")  # noqa: S608 - of names that we have made
        plan = spark.queries.given(found.frame)._jdf.queryExecution().optimizedPlan()
        steps = [node for node in nodes(plan) if class_of(node) == "MapInArrow"]
        assert (len(steps), *found.needs, *found.gives) == (2,)
    # Its columns are looked at as those of any other.
    said = refusal(spark, "SELECT 1 AS nonsense, value FROM records WHERE false")
    assert "gives a column 'nonsense'" in said
    assert "gives no column value" in refusal(spark, "SELECT key FROM records WHERE false")
    said = refusal(spark, "SELECT CAST(count(*) AS STRING) AS value FROM records WHERE false")
    assert said == "The query cannot be run: it aggregates."
    # What it keeps at another time is the same then as it would be now.
    past = (
        "SELECT upper(CAST(value AS STRING)) AS value FROM records WHERE now() < DATE'2020-01-01'"
    )
    found = analysed(spark, past)
    assert (found.needs, *found.gives) == (set(TYPES), "value")


def test_a_query_that_keeps_nothing_answers_for_every_record(desk: Desk) -> None:
    for condition in ("false", "value = NULL"):
        for _ in range(2):
            assert values(desk, f"SELECT value FROM records WHERE {condition}") == []  # noqa: S608 - of names that we have made


def test_what_may_vary_is_another_in_each_job(desk: Desk) -> None:
    sql = "SELECT concat(CAST(current_timestamp() AS STRING), ' ', uuid()) AS value FROM records"
    jobs = [[v.decode().rsplit(" ", 1) for v in values(desk, sql, may_vary=True)] for _ in range(2)]
    assert len({uuid for job in jobs for _, uuid in job}) == 2 * len(RECORDS)
    (first,), (second,) = ({time for time, _ in job} for job in jobs)
    assert first < second


TWICE = "SELECT value, value FROM (SELECT concat('v', CAST(value AS STRING)) AS value FROM records)"


def test_columns_with_the_same_content(spark: SparkSession) -> None:
    found = analysed(spark, TWICE)
    assert (*found.gives, *found.frame.columns) == ("value", NUMBER, "value")
    assert analysed(spark, "SELECT value, value FROM records").gives == set()


def test_columns_with_the_same_content_have_it(desk: Desk) -> None:
    assert values(desk, TWICE) == [b"v0", b"v1", b"v2", b"v3"]


def test_a_join_that_spark_takes_out_is_refused_in_our_words(spark: SparkSession) -> None:
    nothing = "(SELECT * FROM records WHERE false)"
    sql = f"SELECT b.value FROM {nothing} a RIGHT JOIN records b ON a.key = b.key"  # noqa: S608 - of names that we have made
    assert refusal(spark, sql) == "The query cannot be run: it reads records more than once."


def test_a_function_has_its_type_also_if_it_was_looked_at_without_spark(
    spark: SparkSession,
) -> None:
    sql = "SELECT how_long(value) AS value FROM records"
    said = refusal(spark, sql, f"{PACKAGE}:how_long")
    assert said == "The query gives value as INT; it must be BINARY or STRING."


def test_words_for_the_time_ask_for_it(spark: SparkSession) -> None:
    for expression, varies in (
        ("TIMESTAMP'now'", "'now'"),
        ("CAST(' Yesterday' AS DATE)", "'yesterday'"),
        ("to_timestamp('now')", "'now'"),
        *([("try_to_date(CAST(value AS STRING))", "")] if HAS_TRY_TO_DATE else []),
    ):
        found = analysed(spark, f"SELECT CAST({expression} AS STRING) AS value FROM records")  # noqa: S608 - of names that we have made
        assert (expression, found.varies) == (expression, varies)
        # What is folded today is not what is folded tomorrow.
        assert not varies or found.needs == set(TYPES)
    with pytest.raises(QueryRefused, match="asks for 'today', which gives another answer"):
        terms = QueryTerms("SELECT value FROM records WHERE timestamp < DATE 'today'")
        spark.queries.analyse(terms, MEMORY)


@pytest.mark.parametrize(
    ("expression", "word"),
    [
        ("DATE' Today '", "today"),
        ("DATE /* the day */ 'tomorrow'", "tomorrow"),
        ("TIMESTAMP r'now'", "now"),
        (r"TIMESTAMP 'n\u006fw'", "now"),
        ("TIMESTAMP_NTZ'now'", "now"),
        ("TIMESTAMP_LTZ\"NOW\"", "now"),
        ("TIMESTAMP'today CET'", "today"),
        ("TIMESTAMP'tomorrow+01:00'", "tomorrow"),
        ("CASE WHEN key IN ('😀') THEN TIMESTAMP'now' ELSE timestamp END", "now"),
        ("timestamp BETWEEN DATE'2020-01-01' AND DATE'today'", "today"),
        ("timestamp < 'now'", "now"),
        ("CAST('today CET' AS TIMESTAMP)", "today"),
        ("CAST('now' AS TIMESTAMP_NTZ)", "now"),
        ("CAST(concat('no', 'w') AS TIMESTAMP)", "now"),
        ("CAST(ifnull(NULL, 'now') AS TIMESTAMP)", "now"),
        ("'now'::timestamp", "now"),
        ("try_cast('now' AS date)", "now"),
        ("try_to_timestamp('now')", "now"),
        ("to_timestamp_ntz('now')", "now"),
        ("to_date('yesterday')", "yesterday"),
        ("date('tomorrow')", "tomorrow"),
        ("date_add('today', 1)", "today"),
        ("date_format('now', 'yyyy')", "now"),
        ("TIMESTAMP'2020-01-01 00:00:00'", ""),
        ("DATE'epoch'", ""),
        ("CAST('epoch' AS DATE)", ""),
        ("concat('now', ' or never')", ""),
        ("CAST('2020-01-01' AS DATE)", ""),
    ],
)  # fmt: skip
def test_words_for_the_time_however_they_are_written(
    spark: SparkSession, expression: str, word: str
) -> None:
    for sql in (
        f"SELECT CAST({expression} AS STRING) AS value FROM records",  # noqa: S608 - of names that we have made
        f"WITH r AS (SELECT {expression} AS x, value FROM records) SELECT CAST(x AS STRING) AS value FROM r",  # noqa: S608 - of names that we have made
    ):
        assert analysed(spark, sql).varies == (word and f"'{word}'")


def test_words_for_the_time_in_a_record_are_no_time(desk: Desk) -> None:
    """Else each record would have to be looked at."""
    rows = [RECORDS[0]._replace(value=word) for word in (b"now", b"today", b"2020-01-01")]
    sql = (
        "SELECT CAST(coalesce(try_to_timestamp(v), try_cast(v AS DATE)) AS STRING) AS value "
        "FROM (SELECT CAST(value AS STRING) AS v FROM records)"
    )
    found = desk.ask(desk.prepare(QueryTerms(sql)), rows)
    assert found.given.columns["value"] == [None, None, b"2020-01-01 00:00:00"]


IV = "unhex(left(sha2(concat_ws('/', topic, partition, offset), 256), 24))"


@pytest.mark.parametrize(
    ("arguments", "varies"),
    [
        ("", True),
        (", 'CBC'", True),
        (", 'ecb'", False),
        (f", 'GCM', 'DEFAULT', {IV}", False),
        (", 'GCM', 'DEFAULT', X'000000000000000000000000'", False),
    ],
)
def test_an_encryption_varies_unless_it_is_told_where_to_begin(
    spark: SparkSession, desk: Desk, arguments: str, varies: bool
) -> None:
    sql = f"SELECT aes_encrypt(value, '0000111122223333'{arguments}) AS value FROM records"  # noqa: S608 - of names that we have made
    assert analysed(spark, sql).varies == ("aes_encrypt without an iv" if varies else "")
    first, second = (values(desk, sql, may_vary=varies) for _ in range(2))
    assert (first != second) == varies


def test_what_varies_gives_all_that_it_names(spark: SparkSession) -> None:
    """Today it may be the record's own topic, tomorrow another one."""
    found = analysed(
        spark,
        "SELECT value, if(current_date() < DATE'9999-01-01', topic, 'x') AS topic FROM records",
    )
    assert found.gives == {"value", "topic"}


def test_a_query_may_be_nested_deeply(spark: SparkSession) -> None:
    select = "SELECT value FROM records WHERE "
    chain = " AND ".join(f"offset <> {number}" for number in range(300))
    assert analysed(spark, select + chain).needs == {"offset"}
    refused = refusal(spark, select + "(" * 3000 + "offset" + " + 1)" * 3000 + " > 0")
    assert "deeply" in refused


# -- nothing but the record -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("reflect('java.lang.System', 'getProperty', 'user.home')", "reflect"),
        ("JAVA_METHOD('java.util.UUID', 'randomUUID')", "java_method"),
        ("`try_reflect`('java.lang.Class', 'forName', 'x')", "try_reflect"),
        ("builtin.reflect('java.lang.System', 'exit', 1)", "reflect"),
        (
            "CAST(from_xml('<a/>', 'a INT', map('rowValidationXSDPath', '/etc/passwd')) AS STRING)",
            "from_xml",
        ),
        ("from_protobuf(value, 'M', '/etc/passwd').a", "from_protobuf"),
        ("current_user()", "current_user"),
        ("CURRENT_USER", "current_user"),
        ("user", "current_user"),
        ("session_user", "current_user"),
        ("input_file_name()", "input_file_name"),
        ("version()", "version"),
        ("xpath_string(CAST(value AS STRING), '/a')", "xpath_string"),
        ("CAST(xpath('<a/>', '/a') AS STRING)", "xpath"),
    ],
)
def test_functions_that_reach_outside_are_not_there(
    spark: SparkSession, expression: str, name: str
) -> None:
    if name == "try_reflect" and not hasattr(functions, "try_reflect"):
        pytest.skip("not in this PySpark")
    said = refusal(spark, f"SELECT {expression} AS value FROM records")  # noqa: S608 - of names that we have made
    assert said == f"The query calls {name}, which reaches outside of the record."


@pytest.mark.parametrize(
    "relation",
    [
        "text.`/etc/hostname`",
        "csv.`/etc/passwd`",
        "binaryFile.`/etc/hostname`",
        "IDENTIFIER('text.`/etc/hostname`')",
        "range(3)",
        "sql_keywords()",
        "elsewhere.orders",
    ],
)
def test_relations_that_are_not_the_records_are_not_read(
    spark: SparkSession, relation: str
) -> None:
    said = refusal(spark, f"SELECT CAST(r.value AS STRING) AS value FROM records r, {relation}")  # noqa: S608 - of names that we have made
    assert "NOT_FOUND" in said or "UNRESOLVABLE" in said or "cannot be found" in said, said


@pytest.mark.parametrize(
    "text", ["${env:HOME}", "${system:user.dir}", "${spark.app.name}", "${sparkconf:spark.master}"]
)
def test_nothing_of_the_environment_is_put_into_a_query(
    spark: SparkSession, desk: Desk, text: str
) -> None:
    assert set(values(desk, f"SELECT '{text}' AS value FROM records")) == {text.encode()}  # noqa: S608 - of names that we have made
    assert "home" not in refusal(spark, f"SELECT {text} AS value FROM records").lower()  # noqa: S608 - of names that we have made


def test_no_address_is_asked_while_a_query_is_looked_at(spark: SparkSession) -> None:
    """Constant expressions are evaluated in the driver."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.5)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/dtd"
        text = f'<!DOCTYPE a SYSTEM "{address}"><a>t</a>'
        refusal(spark, f"SELECT value FROM records WHERE xpath_string('{text}', '/a') = 't'")  # noqa: S608 - of names that we have made
        with pytest.raises(TimeoutError):
            server.accept()


@pytest.mark.parametrize("command", ["SET spark.app.name=x", "SET VAR a = 1", "ADD JAR '/x.jar'"])
def test_commands_are_no_queries(spark: SparkSession, command: str) -> None:
    """Not even one that is refused afterwards, for it gives no column of a record."""
    assert "PARSE_SYNTAX_ERROR" in refusal(spark, command)


def test_every_other_function_of_spark_is_there(spark: SparkSession) -> None:
    """A Spark that has more than is listed says so here."""
    session: Any = spark.queries._planner._new_session()
    jvm: Any = spark.queries.context._jvm
    whole = jvm.org.apache.spark.sql.catalyst.analysis.FunctionRegistry
    known = str(whole.builtin().listFunction().mkString("\n")).split("\n")
    names = {name.rpartition(".")[2].strip("`") for name in known}
    left = session._jsparkSession.sessionState().functionRegistry().listFunction()
    there = {name.rpartition(".")[2].strip("`") for name in str(left.mkString("\n")).split("\n")}
    assert names - there == names & builtins.REFUSED
