"""The careful plan of a query says of each record what the query itself does with it alone."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from query_session import desk_at, started

from sparkmirror.dataplane.query import engine, running
from sparkmirror.dataplane.query.columns import Prepared
from sparkmirror.dataplane.query.desk import Desk
from sparkmirror.dataplane.query.terms import QueryLimits, QueryTerms
from sparkmirror.spark.session import SparkSession
from sparkmirror.transforms.record import ConnectRecord

pytestmark = pytest.mark.slow
Answer = tuple[dict[int, tuple[str, ...]], dict[int, str]]

VALUES = [b"1", b"0", b"x", None, b'{"a": 7}', b"", b"2,5", b"2,x"]
KEYS = [None, b"k", b"1", b"x", b"0", b"5", None, b"7"]
RECORDS = [
    ConnectRecord("t", 0, n, 1_700_000_000_000 + n, key, value, [("h", b"1")])
    for n, (key, value) in enumerate(zip(KEYS, VALUES, strict=True))
]
WORDS = {"<number>": "CAST(<text> AS INT)", "<text>": "CAST(value AS STRING)"}
QUERIES = [
    # A condition that is null ends the matter, before one that would raise.
    "SELECT value FROM records WHERE key = 'k' AND <number> > 0",
    "SELECT value FROM records WHERE <number> > 0 AND key = 'k'",
    # So does one behind a check for null, which Spark puts last.
    "SELECT value FROM records WHERE <number> IS NOT NULL AND key = 'k'",
    "SELECT value FROM records WHERE key = 'k' OR <number> > 0",
    # What a condition drops is not looked at any further.
    "SELECT CAST(10 / <number> AS STRING) AS value FROM records WHERE <text> <> 'x'",
    "SELECT v AS value FROM (SELECT CAST(<number> AS STRING) AS v FROM records) WHERE v <> '0'",
    # The same twice, which Spark would like to do once.
    "SELECT CAST(<number> AS STRING) AS value, <number> AS partition FROM records "
    "WHERE <number> < 5",
    "SELECT CASE WHEN key IS NULL THEN value ELSE CAST(<number> AS STRING) END AS value FROM records",
    "SELECT split(<text>, ',')[1] AS value, NULL AS partition, array() AS headers FROM records",
    "SELECT raise_error(<text>) AS value FROM records WHERE <text> LIKE '2%'",
    "SELECT value, timestamp + make_interval(0, 0, 0, 1) AS timestamp, concat('t-', CAST(key AS STRING)) AS topic FROM records",
]  # fmt: skip


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with started("local[1]") as session:
        yield session


@pytest.fixture(scope="module")
def desk(spark: SparkSession) -> Iterator[Desk]:
    with desk_at(spark) as made:
        yield made


def query_of(spark: SparkSession, prepared: Prepared) -> running.RunningQuery:
    return next(q for q in spark.queries._queries.values() if q.number == prepared.number)


def asked(desk: Desk, prepared: Prepared, rows: Sequence[ConnectRecord]) -> Answer:
    found = desk.ask(prepared, rows)
    columns = sorted(found.given.columns.items())
    kept = {
        rows[row].offset: tuple(repr(values[at]) for _, values in columns)
        for at, row in enumerate(found.given.rows)
    }
    return kept, {rows[row].offset: said for row, said in found.bad.items()}


@pytest.mark.parametrize("sql", QUERIES)
def test_the_careful_plan_agrees_with_the_plain_one(
    spark: SparkSession, desk: Desk, sql: str
) -> None:
    for short, whole in WORDS.items():
        sql = sql.replace(short, whole)
    prepared = desk.prepare(QueryTerms(sql))
    query = query_of(spark, prepared)
    careful = query._careful
    assert careful is not None
    query._careful = None
    kept: dict[int, tuple[str, ...]] = {}
    bad: dict[int, str] = {}
    for record in RECORDS:
        some, raised = asked(desk, prepared, [record])
        kept |= some
        bad |= raised
    assert query._careful_jobs == 0
    query._careful, query._careful_jobs = careful, running._CAREFUL_JOBS
    found, sifted = asked(desk, prepared, RECORDS)
    assert (found, set(sifted)) == (kept, set(bad))
    if bad:
        first = min(bad)
        assert sifted[first] == bad[first]
        assert query._careful_jobs == running._CAREFUL_JOBS
    else:
        assert query._careful_jobs < running._CAREFUL_JOBS
    query._careful_jobs = 0  # and from the plain one to the careful one by itself
    assert asked(desk, prepared, RECORDS) == (found, sifted)
    assert bool(query._careful_jobs) == bool(bad)


def test_a_record_that_overflows_the_stack_is_bad_and_spark_lives(
    spark: SparkSession, desk: Desk
) -> None:
    sql = "SELECT regexp_replace(CAST(value AS STRING), '(a|b)*c', '') AS value FROM records"
    prepared = desk.prepare(QueryTerms(sql))
    long = RECORDS[0]._replace(offset=99, value=b"a" * 1_000_000)
    kept, bad = asked(desk, prepared, [*RECORDS[:2], long])
    assert (set(kept), bad) == ({0, 1}, {99: "Spark fails with java.lang.StackOverflowError"})
    assert spark.is_alive


def test_a_query_that_asks_for_the_time_gets_it_anew_for_each_job(desk: Desk) -> None:
    sql = "SELECT CAST(current_timestamp() AS STRING) AS value FROM records"
    prepared = desk.prepare(QueryTerms(sql, may_vary=True))
    times = [asked(desk, prepared, RECORDS[:2])[0] for _ in range(2)]
    assert times[0][0] == times[0][1]
    assert times[0][0] < times[1][0]
    assert times[1][0] == times[1][1]


def test_a_query_that_nobody_knows_any_more_is_let_go(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_KEPT_S", 0.5)
    queries = spark.queries._queries
    other = Desk(spark.queries.driver, "B->C", QueryLimits(interval=0.0))
    terms = QueryTerms("SELECT value FROM records WHERE offset > 3")
    prepared = other.prepare(terms)
    assert set(asked(other, prepared, RECORDS)[0]) == {4, 5, 6, 7}
    time.sleep(2)  # longer than that, but it is known
    assert ("B->C", terms.text) in queries
    other.close()
    deadline = time.monotonic() + 30
    while ("B->C", terms.text) in queries:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    again = Desk(spark.queries.driver, "B->C", QueryLimits(interval=0.0))
    assert set(asked(again, again.prepare(terms), RECORDS)[0]) == {4, 5, 6, 7}
    again.close()
