"""Flows with a query beside batch queries: recipes of the docs and records of all sorts in; what must be on the target out."""

from __future__ import annotations

import base64
import json
import random
import re
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, Self

import javaproperties
from kafka_tools import (
    Headers,
    NewRecord,
    Record,
    consume,
    end_offsets,
    produce,
    produce_transaction,
    topics,
    wait_for,
)
from program import Program

from sparkmirror.processes import spawn
from sparkmirror.tools.clusters import KafkaCluster

PAGE = Path(__file__).parents[2] / "docs" / "transform-sql.md"
BATCH = Path(__file__).with_name("batch_query.py")
BATCH_S = 300.0
FIRST_MS = 1_700_000_000_000
_BLOCK = re.compile(r"(?:<!-- (\w+): ([\w-]+) -->\n)?```(\w*)\n(.*?)```\n", re.S)

Content = tuple[int, bytes | None, bytes | None, Headers]
Contents = dict[tuple[str, int], list[Content]]
"""What each partition of each topic holds, in order: time, key, value, headers."""
Source = tuple[str, int, int]


# -- recipes --------------------------------------------------------------------------------------


class Recipe(NamedTuple):
    """One recipe of the page."""

    name: str
    sql: str
    keys: dict[str, str]
    """The properties of its flow, as the page has them."""

    def connector(self) -> dict[str, str]:
        """Those of its connector, without the flow's name."""
        return {key.removeprefix("A->B."): value for key, value in self.keys.items()}


def blocks(kind: str) -> list[tuple[str, str, str]]:
    """The fenced blocks of the page in one language: what the comment before says it is, its name, and the text."""
    found = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    return [(role, name, text) for role, name, language, text in found if language == kind]


def recipes() -> dict[str, Recipe]:
    """All recipes of the page."""
    flows = {
        name: javaproperties.loads(text)
        for role, name, text in blocks("properties")
        if role == "flow"
    }
    queries = {name: text.strip() for role, name, text in blocks("sql") if role == "recipe"}
    assert flows.keys() == queries.keys()
    return {name: Recipe(name, sql, flows[name]) for name, sql in queries.items()}


def head() -> dict[str, str]:
    """What the page says that all its flows have in common."""
    return next(
        javaproperties.loads(text)
        for role, name, text in blocks("properties")
        if (role, name) == ("head", "all")
    )


# -- records --------------------------------------------------------------------------------------

TENANTS = ("acme", "globex", "a-1", "Not A Name", "ä", "", "x" * 300, "..", 'q"', None, 7)
COUNTRIES = ("DE", "FR", "DE", "de", None, 49, ["DE"], {"code": "DE"}, "D\u00c9")
MAILS = (
    "anna@example.com",
    "j\u00f6rg.m\u00fcller+x@b\u00fccher.example",
    "two@a.example, three@b.example",
    "none",
    "@",
    "a@",
    "line\nnext@example.com",
    'quote"d@example.com',
    "back\\slash@example.com",
    "\U0001f600smile@example.com",
    None,
    ["in@a.list"],
    {"work": "deep@example.com"},
)
ODD: tuple[bytes | None, ...] = (
    None,
    b"",
    b"null",
    b"true",
    b"12",
    b"[]",
    b"{}",
    b'"mail@example.com"',
    b"not json, but mail@example.com",
    b'{"country":"DE"',
    b'{"country":"DE","tenant":"acme"} trailing@example.com',
    b'{"country":"DE","country":"FR","tenant":"acme","tenant":"globex"}',
    b'{"mail":"escaped\\u0040example.com","country":"\\u0044E","tenant":"ac\\u006de"}',
    b'\xef\xbb\xbf{"country":"DE","mail":"bom@example.com"}',
    b'{"country":"DE","mail":"\xff\xfe@example.com"}',
    b"\x00\x01\x02\xff",
    b'{"country" : "DE" , "mail" : "spaces@example.com" , "tenant":"acme" }\n',
    b'{"a":' * 200 + b'{"mail":"nested@example.com"}' + b"}" * 200,
    b'{"country":"DE","tenant":"globex","data":"' + b"QUJD" * 10_000 + b'","m":"z@example.com"}',
    '{"country":"DE","name":"\u65e5\u672c\u8a9e \U0001f600","tenant":"acme"}'.encode(),
    '{"country":"DE","name":"\u65e5"}'.encode("utf-16"),
)
KEYS: tuple[bytes | None, ...] = (
    b"acme/1",
    b"globex/2",
    None,
    b"",
    b"Not A Name/3",
    b"\xff\xfe\x00",
    "\u00e4/4".encode(),
    b"acme",
)
HEADERS: tuple[Headers, ...] = (
    (),
    (("trace", b"\x00\xff"), ("null", None)),
    (("same", b"1"), ("same", b"2"), ("same", None)),
    (("n\u00e4me", "w\u00e9rt".encode()), ("empty", b"")),
)


class People:
    """Records of all sorts, none like another; the last of a partition is one that every recipe keeps."""

    def __init__(self, seed: str, partitions: int) -> None:
        self._random = random.Random(seed)
        self._partitions = partitions
        self._numbers = count()

    def rows(self, number: int) -> list[NewRecord]:
        return [self._row(next(self._numbers)) for _ in range(number)]

    def last(self) -> list[NewRecord]:
        """One for each partition."""
        value = b'{"country":"DE","tenant":"acme","mail":"last@example.com"}'
        return [
            NewRecord(b"acme/last", value, partition, FIRST_MS + next(self._numbers), ())
            for partition in range(self._partitions)
        ]

    def _row(self, number: int) -> NewRecord:
        pick = self._random
        jump = pick.choice((0, 0, 0, -86_400_000, 3_600_000))
        return NewRecord(
            pick.choice(KEYS),
            pick.choice(ODD) if pick.random() < 0.3 else self._document(number),
            pick.randrange(self._partitions),
            FIRST_MS + number + jump,
            (*pick.choice(HEADERS), ("n", b"%d" % number)),
        )

    def _document(self, number: int) -> bytes:
        pick = self._random
        fields = {
            "id": number,
            "tenant": pick.choice(TENANTS),
            "country": pick.choice(COUNTRIES),
            "email": pick.choice(MAILS),
            "text": "x" * pick.randrange(60),
        }
        names = list(fields)
        pick.shuffle(names)
        kept = {name: fields[name] for name in names if pick.random() < 0.95}
        return json.dumps(kept, ensure_ascii=pick.random() < 0.5).encode()


def write_all_sorts(bootstrap: str, topic: str, people: People, number: int = 60) -> None:
    """Records in batches of all sorts: every codec, in transactions that were committed and ones that were not."""
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        produce(bootstrap, topic, people.rows(number), compression_type=codec)
    produce_transaction(bootstrap, topic, people.rows(number), compression_type="lz4")
    produce_transaction(bootstrap, topic, people.rows(number), commit=False)
    produce(bootstrap, topic, people.rows(number), batch_num_messages=1)
    produce_transaction(bootstrap, topic, people.rows(number))
    produce(bootstrap, topic, people.last())


# -- batch queries --------------------------------------------------------------------------------


class Asked(NamedTuple):
    """A query over the whole of a topic."""

    sql: str
    topic: str
    rows: Sequence[Record]
    alias: str = "A"
    """The source, as the flow that has the same query calls it."""

    @classmethod
    def of(cls, cluster: KafkaCluster, topic: str, sql: str, alias: str = "A") -> Self:
        """All that is in the topic now."""
        return cls(sql, topic, consume(cluster.bootstrap, topic), alias)


Given = dict[Source, dict[str, Any]]
"""By the record that it came of: the columns that a query gave."""


class Batch:
    """Batch queries under way in a process of their own: `Batch(asked, directory).answers()`."""

    def __init__(self, asked: Sequence[Asked], directory: Path) -> None:
        self._asked = asked
        self._log, self._answered = directory / "batch.log", directory / "batch-answers.json"
        file = directory / "batch.json"
        text = json.dumps([{"sql": each.sql, "rows": _plain_rows(each)} for each in asked])
        file.write_text(text, encoding="ascii")
        command = [sys.executable, str(BATCH), str(file), str(self._answered)]
        self._process = spawn(command, log=self._log)

    def answers(self) -> list[Given]:
        """What each query gave."""
        try:
            code = self._process.wait(BATCH_S)
        finally:
            self._process.kill()
        assert code == 0, self._log.read_text()[-4000:]
        return [
            {(topic, partition, offset): given for (topic, partition, offset), given in rows}
            for rows in json.loads(self._answered.read_text(encoding="ascii"))
        ]

    def contents(self) -> list[Contents]:
        """What a flow that has the query must have written, topic by topic."""
        return [
            written(asked, given) for asked, given in zip(self._asked, self.answers(), strict=True)
        ]


def written(asked: Asked, given: Mapping[Source, Mapping[str, Any]]) -> Contents:
    """Records as the columns of a batch query change them, where the replication policy puts them."""
    found: Contents = defaultdict(list)
    for row in asked.rows:
        columns = given.get((asked.topic, row.partition, row.offset))
        if columns is None:
            continue
        place = int(columns.get("partition", row.partition))
        headers = row.headers
        if "headers" in columns:
            headers = tuple((name, _bytes(value)) for name, value in columns["headers"])
        content = (
            int(columns.get("timestamp", row.timestamp)),
            _bytes(columns["key"]) if "key" in columns else row.key,
            _bytes(columns["value"]),
            headers,
        )
        name = columns.get("topic", asked.topic)
        found[f"{asked.alias}.{name}", place].append(content)
    return dict(found)


def _plain_rows(asked: Asked) -> list[list[Any]]:
    return [
        [
            asked.topic,
            row.partition,
            row.offset,
            row.timestamp,
            _text(row.key),
            _text(row.value),
            [[name, _text(value)] for name, value in row.headers],
        ]
        for row in asked.rows
    ]


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


# -- the target -----------------------------------------------------------------------------------


def arrived(target: KafkaCluster, topic: str, alias: str = "A") -> Contents:
    """What the copy of a topic holds, and the topics that its name begins the names of."""
    found: Contents = defaultdict(list)
    for name in _copies(target, f"{alias}.{topic}"):
        for row in consume(target.bootstrap, name):
            found[name, row.partition].append((row.timestamp, row.key, row.value, row.headers))
    return dict(found)


def arrived_count(target: KafkaCluster, topic: str, alias: str = "A") -> int:
    names = _copies(target, f"{alias}.{topic}")
    return sum(sum(end_offsets(target.bootstrap, name).values()) for name in names)


def _copies(target: KafkaCluster, remote: str) -> list[str]:
    return [n for n in topics(target.bootstrap) if n == remote or n.startswith(f"{remote}.")]


def total(contents: Contents) -> int:
    return sum(len(rows) for rows in contents.values())


def await_count(
    program: Program, target: KafkaCluster, goals: Mapping[tuple[str, str], int], patience: float
) -> None:
    """Until the copies of topics (by alias and name) hold so many records; the program that writes them must not end."""

    def is_done() -> bool:
        assert program.process is not None
        assert program.process.poll() is None, f"it ended, and said: {program.output[-4000:]}"
        return all(arrived_count(target, name, alias) >= n for (alias, name), n in goals.items())

    try:
        wait_for("all is copied", is_done, patience)
    except AssertionError as error:
        there = {name: arrived_count(target, name, alias) for alias, name in goals}
        raise AssertionError(f"{error}: {there} of {goals}\n{program.output[-4000:]}") from None


def assert_same(got: Contents, wanted: Contents) -> None:
    """Every partition holds its records, each once and in order."""
    for key in sorted(got.keys() | wanted.keys()):
        there, right = got.get(key, []), wanted.get(key, [])
        if there == right:
            continue
        pairs = zip(there, right, strict=False)
        at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(there), len(right)))
        raise AssertionError(
            f"{key}: {len(there)} records for {len(right)}, {len(there) - len(set(there))} of them repeated; different from "
            f"record {at} on: {there[at : at + 2]!r:.600} for {right[at : at + 2]!r:.600}"
        )
