"""Replacements in texts that are made behind Spark: which of a query are, and that every text is the one that Spark makes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql.functions import col, lit, regexp_replace
from query_session import MEMORY, as_bytes, assert_as_in_spark_alone, desk_at, in_spark, started

from sparkmirror.dataplane.query.columns import Edit, Feed
from sparkmirror.dataplane.query.describing import described
from sparkmirror.dataplane.query.desk import Desk
from sparkmirror.dataplane.query.edits import edited
from sparkmirror.dataplane.query.patterns import rewritten, translated
from sparkmirror.dataplane.query.terms import QueryTerms
from sparkmirror.spark.session import SparkSession
from sparkmirror.transforms.record import ConnectRecord

pytestmark = pytest.mark.slow
SEED = 20_261_116
ONE = (
    "a", "b", "0", "-", '"', ":", "_", " ", ".", r"\.", r"\d", r"\w", r"\s", r"\n", r"\t", r"\"", r"\\", r"\-",
    "[ab]", "[^ab]", "[a-c]", "[^0-9]", r"[\w.]", r"[\s:]", r"[^\s]", '[^"]', "[0-9a-f]", r"[\d\-]", "[ab-]", r"[^\d_]", "[.*+]",
)  # fmt: skip
TIMES = ("", "", "", "", "*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?", "??", "{1,2}?")
REPLACEMENTS = ("", "***", "<$0>", "$1", '"x":"$1"', "\u20ac", "$2$1")
LETTERS = 'aabbcc01299--"":: __..\\\\ab\xe9\u20ac\U0001f600\u0661\n\r\t\x0b\x0c\x85\u2028\u2029\xa0'
UNFIT = [b"\xff", b"ab\xffab", b"caf\xc3", b"\xed\xa0\x80 a0", b"\xc0\x80", b"a" * 50 + b"\xfe"]
TEXT = "CAST(value AS STRING)"


class Patterns:
    """Patterns of all kinds, most of which can be taken over."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def many(self, count: int) -> list[str]:
        return list(dict.fromkeys(self._alternatives(0) for _ in range(count)))

    def texts(self, count: int) -> list[bytes]:
        sizes = (0, 1, 2, 5, 20, 60)
        return [
            "".join(self._random.choices(LETTERS, k=self._random.choice(sizes))).encode()
            for _ in range(count)
        ]

    def _alternatives(self, depth: int) -> str:
        return "|".join(self._sequence(depth) for _ in range(self._random.choice((1, 1, 1, 2))))

    def _sequence(self, depth: int) -> str:
        return "".join(self._item(depth) for _ in range(self._random.choice((1, 2, 3, 4))))

    def _item(self, depth: int) -> str:
        chosen = self._random.choice
        if depth < 2 and self._random.random() < 0.25:
            return chosen(("(", "(?:")) + self._alternatives(depth + 1) + ")"
        return chosen(ONE) + chosen(TIMES)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with started("local[2]") as session:
        yield session


@pytest.fixture(scope="module")
def desk(spark: SparkSession) -> Iterator[Desk]:
    with desk_at(spark) as made:
        yield made


def test_what_is_made_is_what_spark_makes(spark: SparkSession, tmp_path: Path) -> None:
    kinds = Patterns(SEED)
    texts = kinds.texts(800)
    edits: list[tuple[str, str, Edit]] = []
    for pattern in kinds.many(2000):
        found = translated(pattern)
        for replacement in REPLACEMENTS if found else ():
            made = rewritten(replacement, found.groups if found else 0)
            if found and made is not None:
                edits.append((pattern, replacement, Edit("value", ((found.text, made),))))
    edits = random.Random(SEED).sample(edits, 900)
    frame = in_spark(spark, tmp_path, texts)
    text, changed = col("value").cast("string"), 0
    for start in range(0, len(edits), 60):
        some = edits[start : start + 60]
        asked = [regexp_replace(text, lit(p), lit(r)).cast("binary") for p, r, _ in some]
        rows = frame.select(*asked).collect()
        for index, (pattern, replacement, edit) in enumerate(some):
            said = [as_bytes(row[index]) for row in rows]
            for given, here, there in zip(texts, edited(texts, edit), said, strict=True):
                assert (pattern, replacement, given, here) == (pattern, replacement, given, there)
                changed += here != given
    assert changed > 100_000


def test_which_replacements_are_made_behind_spark(spark: SparkSession) -> None:
    def seen(sql: str) -> tuple[Feed, Mapping[str, Edit]]:
        found = spark.queries.analyse(QueryTerms(sql), MEMORY)
        return found.feed, found.edits

    mask = f"regexp_replace({TEXT}, 'a+', 'b')"
    edit = Edit("value", (("a+", "b"),))
    # No text goes to Spark but such as is none.
    assert seen(f"SELECT {mask} AS value FROM records") == (  # noqa: S608
        Feed(frozenset(), {}, frozenset({"value"})),
        {"value": edit},
    )
    where = f"get_json_object({TEXT}, '$.a') <> 'x'"
    assert seen(f"SELECT {mask} AS value FROM records WHERE {where}") == (  # noqa: S608
        Feed(frozenset(), {"value": ("$.a",)}, frozenset({"value"})),
        {"value": edit},
    )
    # What else looks at it gets it.
    assert seen(f"SELECT {mask} AS value, upper({TEXT}) AS key FROM records") == (  # noqa: S608
        Feed(frozenset({"value"}), {}, frozenset({"value"})),
        {"value": edit},
    )
    twice = "regexp_replace(regexp_replace(CAST(key AS STRING), 'x', 'y'), '(z)', '$1$1')"
    sql = f"SELECT CAST({twice} AS BINARY) AS value FROM records WHERE offset > 1"  # noqa: S608
    assert seen(sql) == (
        Feed(frozenset({"offset"}), {}, frozenset({"key"})),
        {"value": Edit("key", (("x", "y"), ("(z)", r"\1\1")))},
    )
    inner = f"SELECT v AS value FROM (SELECT {mask} AS v FROM records WHERE value IS NOT NULL)"  # noqa: S608
    assert seen(inner)[1] == {"value": edit}
    for other in (
        f"upper({mask})",
        f"regexp_replace(upper({TEXT}), 'a+', 'b')",
        f"regexp_replace({TEXT}, 'a*', 'b')",
        f"regexp_replace({TEXT}, 'a+', '$1')",
        f"regexp_replace({TEXT}, 'a+', 'b', 2)",
        f"regexp_replace({TEXT}, CAST(key AS STRING), 'b')",
        f"regexp_replace({TEXT}, 'a+', CAST(key AS STRING))",
        f"regexp_replace({TEXT} COLLATE UTF8_LCASE, 'a+', 'b')",
        f"regexp_replace({TEXT}, 'a+', NULL)",
    ):
        assert not seen(f"SELECT {other} AS value FROM records")[1]  # noqa: S608
    # What a condition looks at is made where the condition is.
    found = seen(f"SELECT value FROM records WHERE {mask} = 'b'")  # noqa: S608
    assert found == (Feed(frozenset({"value"})), {})


def test_the_plan_tells_what_is_done_beside_spark(spark: SparkSession) -> None:
    where = f"get_json_object({TEXT}, '$.a') <> 'x'"
    sql = f"SELECT regexp_replace({TEXT}, 'a+', 'b') AS value FROM records WHERE {where}"  # noqa: S608
    told = described(spark.queries, QueryTerms(sql), MEMORY).plan.splitlines()
    *plan, before, behind, kept = told
    assert any("Filter" in line for line in plan)
    assert before.startswith("Read before Spark from the JSON in value: $.a;")
    assert behind.startswith("Made behind Spark by regexp_replace of value: value;")
    assert kept.startswith("What Spark says of a record is kept")
    sql = f"SELECT value FROM records WHERE key IS NULL OR {where}"  # noqa: S608
    told = described(spark.queries, QueryTerms(sql), MEMORY).plan.splitlines()
    assert told[-2] == "Said of each record before Spark: whether it has no key (__key?)."
    sql = f"SELECT value FROM records WHERE offset > 1 OR {where}"  # noqa: S608
    assert "is kept" not in described(spark.queries, QueryTerms(sql), MEMORY).plan


QUERIES = (
    "SELECT regexp_replace({text}, '[ab]+', '<$0>') AS value FROM records",
    "SELECT regexp_replace({text}, '(a)|(b)', '$2-$1') AS value FROM records WHERE length(value) > 3",
    "SELECT regexp_replace(regexp_replace({text}, '\\\\w+', 'W'), '[^W]', '') AS value, "
    "regexp_replace(CAST(key AS STRING), '.', '?') AS key FROM records WHERE key IS NOT NULL",
    "SELECT regexp_replace(CAST(key AS STRING), 'a', '') AS value, {text} AS key FROM records",
    "SELECT regexp_replace({text}, 'a', 'b') AS value, regexp_replace({text}, 'b', 'a') AS key "
    "FROM records WHERE {text} > 'a' OR get_json_object({text}, '$.a') IS NULL",
)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_it_gives_in_spark_alone(
    spark: SparkSession, desk: Desk, query: str, tmp_path: Path
) -> None:
    sql = query.format(text=TEXT)
    assert spark.queries.analyse(QueryTerms(sql), MEMORY).edits
    texts = [None, *Patterns(SEED + 1).texts(2000), None, *UNFIT, b'{"a":1}', None]
    assert_as_in_spark_alone(spark, desk, tmp_path, sql, texts)


def records(*values: bytes | None) -> list[ConnectRecord]:
    return [ConnectRecord("t", 0, n, 1, None, value, []) for n, value in enumerate(values)]


def test_bad_records_are_found_also_where_texts_are_made_behind_spark(desk: Desk) -> None:
    sql = (
        f"SELECT regexp_replace({TEXT}, 'o', '0') AS value, CAST({TEXT} AS INT) AS partition "  # noqa: S608
        "FROM records"
    )
    prepared = desk.prepare(QueryTerms(sql))
    assert prepared.edits
    rows = records(b"1", b"one", b"2", b"\xff", None, b"3")
    answer = desk.ask(prepared, rows)
    assert sorted(answer.bad) == [1, 3]
    assert answer.given.rows == [0, 2, 4, 5]
    assert answer.given.columns["value"] == [b"1", b"2", None, b"3"]
    # Those that are tried with others once more, and those that never were, are made alike.
    answer = desk.ask(prepared, records(b"10", b"20"))
    assert answer.given.columns == {"value": [b"10", b"20"], "partition": [10, 20]}
