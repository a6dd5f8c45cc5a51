"""Fields of JSON that are read before Spark: which of a query are, and that every answer is the one that Spark gives."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql.functions import col, get_json_object
from query_session import MEMORY, as_bytes, assert_as_in_spark_alone, desk_at, in_spark, started

from sparkmirror.dataplane.query.columns import Feed
from sparkmirror.dataplane.query.desk import Desk
from sparkmirror.dataplane.query.fields import FieldReader
from sparkmirror.dataplane.query.terms import QueryTerms
from sparkmirror.spark.session import SparkSession
from sparkmirror.transforms.record import ConnectRecord

pytestmark = pytest.mark.slow
SEED = 20_261_116
SHOUT = "functions_beside_fields:shout"
MODULE = """
def shout(value: bytes | None) -> bytes | None:
    return value and value.upper()
"""
PATHS = ("$.a", "$.b", "$.a.b", "$.b.a.c", "$.a-1_X")
NAMES = ("a", "b", "c", "A", "a-1_X", "", "a.b", "\xe9", "\\u0061", "\\u0062", 'a\\"')
VALID = (
    '""', '"x"', '"long text with spaces"', '"caf\xe9 \U0001f600"', '"\\u00e9\\ud83d\\ude00\\n\\/"',
    '"\\ud800"', '"\\udc00\\ud800"', '"\\u0000"', '"a"', '"\\"a\\":1"', '"\x7f"',
    "null", "null", "true", "false", "0", "-0", "1", "-1", "12345678901", "9223372036854775807",
    "-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616",
    "1.0", "1.50", "1e3", "1E-7", "-0.0", "0.1e400", "99.14", "1" * 1000,
)  # fmt: skip
NEARLY = (
    "01", "+1", ".5", "1.", "NaN", "Infinity", "nul", "'x'", '"\x01"', '"\t"', "1" * 1001, "",
)  # fmt: skip
SPACES = ("", "", "", "", " ", "\n", "\t \r\n", "\x0b", "\xa0")
BROKEN = (
    b"", b" ", b"{", b"}", b"{}", b"{} ", b"[]", b"null", b'"a"', b'{"a"}', b'{"a":}', b'{"a":1',
    b'{"a":1,}', b'{"a":1}}', b'{"a":1}x', b'{"a":1}{"a":2}', b' {"a":1}', b'\xef\xbb\xbf{"a":1}',
    b'{"a":"\xff"}', b'{"a":"\xe2"}', b'{"\xff":1,"a":2}', b'{"a":"\xed\xa0\x80"}', b'{"a":1}\x00',
    b"{'a':1}", b"{a:1}", b'{"a":1}//', b'{/**/"a":1}', b'{"a":"x\ny"}', b'[{"a":1}]',
    b'{"a":[1,2]}', b'{"a":{"b":{}}}',
    b'{"a":' + b"[" * 999 + b"]" * 999 + b"}",
    b'{"b":' + b"[" * 1000 + b"]" * 1000 + b',"a":1}',
    b'{"b":' + b"[" * 1020 + b"]" * 1020 + b',"a":1}',
    b'{"a":"x","' + b"n" * 49_000 + b'":1}',
    b'{"a":"x","' + b"n" * 50_001 + b'":1}',
    b'{"a":"' + b"x" * 60_000 + b'"}',
    b'{"b":' + b"1" * 1000 + b'.5,"a":1}',
    b'{"b":0.' + b"1" * 1001 + b',"a":1}',
    b'{"a":1,"b":-' + b"1" * 1001 + b"e5}",
)  # fmt: skip


class Documents:
    """Objects of all kinds, and what is nearly one; part of them tidy, as programs write them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def many(self, count: int, tidy: float) -> list[bytes]:
        some = (self._tidy() if self._random.random() < tidy else self._one() for _ in range(count))
        return [*BROKEN, *some]

    def _tidy(self) -> bytes:
        chosen = self._random.choice
        scalars = ["x", "y", "1", "caf\xe9", "\n", 1, 0, -7, 1 << 40, True, False, None]
        inner = {name: chosen(scalars) for name in "abc" if self._random.random() < 0.6}
        made: dict[str, object] = {"b": {"a": inner}} if self._random.random() < 0.3 else {}
        for name in self._random.sample(["a", "b", "A", "a-1_X", "text"], 4):
            made.setdefault(name, chosen([*scalars, inner]))
        if self._random.random() < 0.3:  # a long one
            made["more"] = [{"n": n, "text": "word " * 9} for n in range(chosen((20, 200)))]
        is_ascii = self._random.random() < 0.5
        text = json.dumps(made, ensure_ascii=is_ascii, separators=(",", ":"))
        return text.encode()

    def _one(self) -> bytes:
        made = self._object(0).encode()
        if self._random.random() < 0.1 and made:  # one byte of it is another
            at = self._random.randrange(len(made))
            made = made[:at] + bytes([self._random.randrange(256)]) + made[at + 1 :]
        return made

    def _object(self, depth: int) -> str:
        members = [self._member(depth) for _ in range(self._random.choice((0, 1, 1, 2, 2, 3, 5)))]
        return "{" + ",".join(members) + self._space() + "}" + (self._space() if depth else "")

    def _member(self, depth: int) -> str:
        name = self._random.choice(NAMES[:3] if self._random.random() < 0.7 else NAMES)
        return f'{self._space()}"{name}"{self._space()}:{self._space()}{self._value(depth)}'

    def _value(self, depth: int) -> str:
        kind = self._random.random()
        if kind < 0.25 and depth < 3:
            return self._object(depth + 1)
        if kind < 0.3 and depth < 3:
            return "[" + ",".join(self._value(depth + 1) for _ in range(2)) + "]"
        return self._random.choice(VALID if self._random.random() < 0.95 else NEARLY)

    def _space(self) -> str:
        return self._random.choice(SPACES[:5] if self._random.random() < 0.98 else SPACES)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    path = tmp_path_factory.mktemp("functions")
    (path / "functions_beside_fields.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(path), os.environ.get("PYTHONPATH", "")]))
        with started("local[2]") as session:
            yield session


@pytest.fixture(scope="module")
def desk(spark: SparkSession) -> Iterator[Desk]:
    with desk_at(spark) as made:
        yield made


def test_what_is_read_is_what_spark_says(spark: SparkSession, tmp_path: Path) -> None:
    documents = Documents(SEED).many(30_000, tidy=0.2)
    text = col("value").cast("string")
    fields = [get_json_object(text, path).cast("binary") for path in PATHS]
    said = in_spark(spark, tmp_path, documents).select(*fields).collect()
    for index, path in enumerate(PATHS):
        reader, sizes, answers = FieldReader([path]), list[int](), 0
        for document, answer in zip(documents, said, strict=True):
            reader._passing = 0
            unread, ((read_here,),) = reader.read([document])
            if unread is None:
                found = None if read_here is None else read_here.encode()
                assert (path, document, found) == (path, document, as_bytes(answer[index]))
                sizes.append(len(document))
                answers += found is not None
        # Enough of them were read, short ones and long ones, with something in them.
        assert len(sizes) > 8_000
        assert sum(size > 1000 for size in sizes) > 300
        assert answers > 250


def test_which_fields_are_lifted(spark: SparkSession) -> None:
    text = "CAST(value AS STRING)"

    def feed(sql: str) -> Feed:
        return spark.queries.analyse(QueryTerms(sql, may_vary=True), MEMORY).feed

    field = f"get_json_object({text}, '$.a.b')"
    # Only the field goes to Spark, since the record stays as it is.
    found = feed(f"SELECT * FROM records WHERE {field} = 'x' AND length(key) > 1")  # noqa: S608
    assert found == Feed(frozenset({"key"}), {"value": ("$.a.b",)})
    found = feed(f"SELECT upper({text}) AS value FROM records WHERE {field} = 'x'")  # noqa: S608
    assert found == Feed(frozenset({"value"}), {"value": ("$.a.b",)})
    found = feed(
        f"SELECT {field} AS key, value, concat('t-', n) AS topic FROM (SELECT *, "  # noqa: S608
        f"get_json_object(CAST(key AS STRING), '$.n') AS n FROM records WHERE offset > 2)"
    )
    assert found == Feed(frozenset({"offset"}), {"key": ("$.n",), "value": ("$.a.b",)})
    for other in (
        "'$.*'",
        "'$.a[0]'",
        "'$'",
        "'a'",
        "'$.a b'",
        "'$[\\'a\\']'",
        "CAST(key AS STRING)",
        "NULL",
    ):
        sql = f"SELECT * FROM records WHERE get_json_object({text}, {other}) = 'x'"  # noqa: S608
        assert not feed(sql).fields
    sql = f"SELECT * FROM records WHERE get_json_object(trim({text}), '$.a') = 'x'"  # noqa: S608
    assert not feed(sql).fields
    # Those that only go to functions in Python stay where they are.
    terms = QueryTerms(f"SELECT shout(CAST({field} AS BINARY)) AS value FROM records", (SHOUT,))  # noqa: S608
    assert spark.queries.analyse(terms, MEMORY).feed == Feed(frozenset({"value"}))
    # Nor is anything lifted out of what is too deep for us.
    deep = f"length({field}) + {' + '.join(['offset'] * 600)}"
    assert not feed(f"SELECT * FROM records WHERE {deep} > 1").fields  # noqa: S608
    # What varies is planned anew for each job.
    assert feed(f"SELECT {field} AS value FROM records WHERE rand() < 0.5") == Feed()  # noqa: S608


def test_of_which_columns_only_is_said_whether_they_are_there(spark: SparkSession) -> None:
    country = "get_json_object(CAST(value AS STRING), '$.country') = 'DE'"

    def feed(sql: str) -> Feed:
        return spark.queries.analyse(QueryTerms(sql), MEMORY).feed

    value = frozenset({"value"})
    assert feed("SELECT * FROM records WHERE value IS NOT NULL") == Feed(frozenset(), nulls=value)
    found = feed(f"SELECT * FROM records WHERE value IS NULL OR {country}")  # noqa: S608
    assert found == Feed(frozenset(), {"value": ("$.country",)}, nulls=value)
    edit = "regexp_replace(CAST(value AS STRING), 'a', 'b') AS value"
    found = feed(f"SELECT {edit} FROM records WHERE value IS NULL OR key IS NOT NULL AND {country}")  # noqa: S608
    assert found == Feed(frozenset(), {"value": ("$.country",)}, value, frozenset({"key", "value"}))
    # Where the column is given anyway, it tells itself.
    upper = "upper(CAST(value AS STRING)) AS value"
    found = feed(f"SELECT {upper} FROM records WHERE value IS NULL OR {country}")  # noqa: S608
    assert found == Feed(value, {"value": ("$.country",)})
    # What may raise depends on what is looked at first.
    for raising in ("CAST(CAST(key AS STRING) AS INT) > 1", "CAST(key AS STRING) RLIKE '(a|b)*'"):
        found = feed(f"SELECT * FROM records WHERE value IS NOT NULL AND {raising}")  # noqa: S608
        assert found == Feed(frozenset({"key", "value"}))


QUERIES = (
    "SELECT * FROM records WHERE value IS NULL OR get_json_object({text}, '$.a') = 'x'",
    "SELECT regexp_replace({text}, 'a', 'b') AS value, get_json_object({text}, '$.b') AS key "
    "FROM records WHERE NOT (value IS NOT NULL AND get_json_object({text}, '$.a') <> 'x')",
    "SELECT CASE WHEN key IS NULL THEN 'none' WHEN value IS NULL THEN 'gone' "
    "ELSE coalesce(get_json_object({text}, '$.a'), 'other') END AS value FROM records "
    "WHERE key IS NOT NULL OR get_json_object({text}, '$.a') <=> get_json_object({text}, '$.b')",
    "SELECT * FROM records WHERE get_json_object({text}, '$.a') <> "
    "get_json_object(CAST(key AS STRING), '$.a') OR get_json_object({text}, '$.A') = 'y'",
    "SELECT * FROM records WHERE get_json_object({text}, '$.a') = 'x'",
    "SELECT * FROM records WHERE get_json_object({text}, '$.a') IS NULL "
    "OR get_json_object({text}, '$.b') <> '1'",
    "SELECT concat_ws('|', get_json_object({text}, '$.a.b'), get_json_object({text}, '$.b'), {text}) "
    "AS value FROM records",
    "SELECT a AS value, CASE WHEN b > 'a' THEN get_json_object({text}, '$.c') ELSE b END AS key "
    "FROM (SELECT *, get_json_object({text}, '$.a') AS a, get_json_object({text}, '$.b') AS b "
    "FROM records WHERE value IS NOT NULL) WHERE a < 'y'",
    "SELECT CAST(CAST(get_json_object({text}, '$.a') AS INT) + 1 AS STRING) AS value FROM records "
    "WHERE get_json_object({text}, '$.a') RLIKE '^[0-9]{{1,5}}$'",
)


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_gives_what_it_gives_in_spark_alone(
    spark: SparkSession, desk: Desk, query: str, tmp_path: Path
) -> None:
    sql = query.format(text="CAST(value AS STRING)")
    assert spark.queries.analyse(QueryTerms(sql), MEMORY).feed.fields
    documents = [None, *Documents(SEED + 1).many(3000, tidy=0.8)]
    assert_as_in_spark_alone(spark, desk, tmp_path, sql, documents)


def test_what_spark_has_said_of_the_same_it_is_not_asked_again(
    spark: SparkSession, desk: Desk, tmp_path: Path
) -> None:
    """A key made of a field; some documents are none, some records have no value."""
    text = "CAST(value AS STRING)"
    sql = (
        f"SELECT value, concat('t-', get_json_object({text}, '$.kind')) AS key FROM records "  # noqa: S608
        f"WHERE value IS NULL OR get_json_object({text}, '$.kind') <> 'c'"
    )
    rng = random.Random(SEED)
    kinds = ['"a"', '"b"', '"c"', "7", "null", "0.5", '["a"]', '"caf\\u00e9"']
    values = [
        None if rng.random() < 0.1 else b'{"n":%d,"kind":%s}' % (n, rng.choice(kinds).encode())
        for n in range(2000)
    ]
    assert_as_in_spark_alone(spark, desk, tmp_path, sql, [*values, b"no JSON", b"\xff"])
    queue = desk._queries[desk.prepare(QueryTerms(sql)).number]
    known = set(queue._answers._known)
    assert known == {
        ("a", False),
        ("b", False),
        ("c", False),
        ("7", False),
        (None, False),
        (None, True),
        ("caf\u00e9", False),
    }


def test_bad_records_are_found_also_where_fields_are_lifted(desk: Desk) -> None:
    sql = "SELECT CAST(CAST(get_json_object(CAST(value AS STRING), '$.a') AS INT) AS STRING) AS value FROM records"
    values = [b'{"a":"1"}', b'{"a":"one"}', b'{"a":1.0}', b'{"a":2}', b"{", b'{"a":"3"}']
    rows = [ConnectRecord("t", 0, n, 1, None, value, []) for n, value in enumerate(values)]
    answer = desk.ask(desk.prepare(QueryTerms(sql)), rows)
    assert {n: "[CAST_INVALID_INPUT]" in str(why) for n, why in answer.bad.items()} == {
        1: True,
        2: True,
    }
    assert answer.given.rows == [0, 3, 4, 5]
    assert answer.given.columns["value"] == [b"1", b"2", None, b"3"]


@pytest.mark.parametrize(
    "condition",
    [
        "value IS NOT NULL AND {number} > 5",
        "{number} > 5 AND value IS NOT NULL",
        "CAST(value AS STRING) IS NOT NULL AND {number} > 5",
        "{number} > 5 AND length(value) > 3",
    ],
)
def test_what_raises_on_null_is_not_asked_of_records_without_a_value(
    desk: Desk, condition: str
) -> None:
    """Told by a query that has no careful plan, since it calls a function with a named argument."""
    number = "CAST(coalesce(get_json_object(CAST(value AS STRING), '$.a'), '') AS INT)"
    where = condition.format(number=number)
    sql = f"SELECT shout(value => value) AS value FROM records WHERE {where}"  # noqa: S608
    values = [None, b'{"a":"7"}', b'{"a":"8"}', None, b'{"a":3}']
    rows = [ConnectRecord("t", 0, n, 1, None, value, []) for n, value in enumerate(values)]
    answer = desk.ask(desk.prepare(QueryTerms(sql, (SHOUT,))), rows)
    assert (answer.bad, answer.given.rows) == ({}, [1, 2])
