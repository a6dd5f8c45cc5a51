"""The query of a flow: the keys `transform.*` and those for bad records come in, typed settings go out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from sparkmirror.config.keys import Importance, Key, KeyType, Problem, java_trim, parse
from sparkmirror.config.validators import Between, OneOf
from sparkmirror.errors import ConfigError
from sparkmirror.policy.filters import compile_java_patterns
from sparkmirror.policy.java_pattern import JavaPattern

SQL, SQL_FILE, TOPICS = "transform.sql", "transform.sql.file", "transform.topics"
FUNCTIONS = "transform.functions"
_FACTOR = "errors.deadletterqueue.topic.replication.factor"
_BLANK = re.compile(r"\s+|--(?:\\\n|[^\r\n])*")
_COMMENT_MARK = re.compile(r"/\*(?!\+)|\*/")  # behind `/*+` is a hint
_TOKEN = re.compile(
    r"""
      [rR]'[^']*+(?:'|\Z)
    | [rR]"[^"]*+(?:"|\Z)
    | '(?:[^'\\]|\\(?:.|\Z))*+(?:'|\Z)
    | "(?:[^"\\]|\\(?:.|\Z))*+(?:"|\Z)
    | `[^`]*+(?:`|\Z)
    | \w++
    | .
    """,
    re.DOTALL | re.VERBOSE,
)
"""What Spark's lexer takes for one: texts, raw texts (in which a backslash is only that), names. All else by the character.
A text that does not end is one up to the end: the query is wrong then in any case."""


def _key(name: str, kind: KeyType, default: str | None, doc: str, check: object = None) -> Key:
    return Key(
        name=name,
        type=kind,
        default=default,
        doc=f"Ours. {doc}",
        display_name=name,
        importance=Importance.MEDIUM,
        validator=check,  # type: ignore[arg-type]
        hidden=True,  # MirrorMaker 2 does not have it
    )


QUERY_KEYS: tuple[Key, ...] = (
    _key(
        SQL,
        KeyType.STRING,
        None,
        "A query of Spark SQL, SELECT ... FROM records WHERE ..., that records pass through on their way. What it returns is "
        "written; columns that it leaves out stay as they are.",
    ),
    _key(SQL_FILE, KeyType.STRING, None, "A file that holds the query."),
    _key(
        TOPICS,
        KeyType.LIST,
        ".*",
        "The source topics whose records pass through the query: names or Java regular expressions. Others are copied as they "
        "are.",
    ),
    _key(
        FUNCTIONS,
        KeyType.LIST,
        "",
        "Functions in Python that the query may call, package.module:name each.",
    ),
    _key(
        "transform.interval.ms",
        KeyType.LONG,
        "300",
        "How long records are gathered before the query is run on them, unless there are more than one run takes.",
        Between(low=0, high=60_000),
    ),
    _key(
        "transform.timeout.ms",
        KeyType.LONG,
        "60000",
        "How long one run of the query may take before it is given up.",
        Between(low=100),
    ),
    _key(
        "transform.memory.mb",
        KeyType.INT,
        "512",
        "How much memory the functions of the query may take in a Python worker.",
        Between(low=16),
    ),
    _key(
        "transform.nondeterministic",
        KeyType.STRING,
        "refuse",
        "Whether the query may give another answer to the same record (rand, uuid, current_timestamp). With allow, records may "
        "come twice after a failure.",
        OneOf(("refuse", "allow")),
    ),
    _key(
        "errors.deadletterqueue.topic.name",
        KeyType.STRING,
        "",
        "The topic on the target for records on which the query fails, with errors.tolerance=all; empty: none.",
    ),
    _key(
        "errors.deadletterqueue.topic.replication.factor",
        KeyType.SHORT,
        "3",
        "Replication factor of that topic, if it has to be created.",
    ),
    _key(
        "errors.deadletterqueue.context.headers.enable",
        KeyType.BOOLEAN,
        "false",
        "Whether records in that topic tell in headers where they come from and what was wrong.",
    ),
)


@dataclass(frozen=True, slots=True)
class DeadLetterConfig:
    """Where records go on which a query fails. Asked for beside the query: one that was taken away may have some to finish."""

    topic: str = ""
    """Empty: nowhere."""
    factor: int = 3
    is_factor_explicit: bool = False
    with_context: bool = False

    @classmethod
    def parse(cls, props: Mapping[str, str]) -> Self:
        values = parse(QUERY_KEYS, props)
        return cls(
            values.text("errors.deadletterqueue.topic.name").strip(),
            values.integer(_FACTOR),
            _FACTOR in values.given,
            values.boolean("errors.deadletterqueue.context.headers.enable"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryConfig:
    """The query of one flow."""

    sql: str
    topics: tuple[str, ...]
    functions: tuple[str, ...]
    interval_ms: int
    timeout_ms: int
    memory_mb: int
    may_vary: bool
    _pattern: JavaPattern = field(repr=False, compare=False)

    @classmethod
    def parse(cls, props: Mapping[str, str]) -> Self | None:
        """The query of a connector's config; None if it has none. ConfigError for a file that cannot be read."""
        values = parse(QUERY_KEYS, props)
        sql = _sql(props)
        if sql is None:
            return None
        topics = values.items_of(TOPICS)
        return cls(
            sql=sql,
            topics=topics,
            functions=values.items_of(FUNCTIONS),
            interval_ms=values.integer("transform.interval.ms"),
            timeout_ms=values.integer("transform.timeout.ms"),
            memory_mb=values.integer("transform.memory.mb"),
            may_vary=values.text("transform.nondeterministic") == "allow",
            _pattern=compile_java_patterns(topics, TOPICS),
        )

    def asks(self, topic: str) -> bool:
        """Whether the records of a source topic pass through it."""
        return self._pattern.matches(topic)


def _sql(props: Mapping[str, str]) -> str | None:
    given = (props.get(SQL) or "").strip()
    file = java_trim(props.get(SQL_FILE) or "")  # as the name was looked at (`permits`)
    if given:
        return _statement(given)
    if not file:
        return None
    path = Path(file)
    if path.exists() and not path.is_file():
        raise ConfigError(f"{SQL_FILE}={file} is no regular file.", "Name a file.")
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(
            f"{SQL_FILE}={file} cannot be read: {why}.",
            "The file must be there on every worker that runs the connector.",
        ) from error
    if not text:
        raise ConfigError(f"{SQL_FILE}={file} is empty.", "Write the query into it.")
    return _statement(text)


def _statement(text: str) -> str:
    """A query without the semicolon that ends it and what comes behind that: blanks, comments, more of them."""
    end: int | None = None
    at = 0
    while at < len(text):
        behind = _skipped(text, at)
        if behind > at:
            at = behind
        elif text[at] == ";":
            end, at = at if end is None else end, at + 1
        elif _COMMENT_MARK.match(text, at):  # it does not end: Spark says so
            end, at = None, len(text)
        else:  # something of the query itself
            token = _TOKEN.match(text, at)
            end, at = None, token.end() if token else at + 1
    return text[:end].rstrip()


def _skipped(text: str, at: int) -> int:
    """Where the blanks or the comment end that begin here; `at` itself if none do. Comments may be inside of comments."""
    if found := _BLANK.match(text, at):
        return found.end()
    depth = 0
    for mark in _COMMENT_MARK.finditer(text, at) if _COMMENT_MARK.match(text, at) else ():
        depth += 1 if mark[0] == "/*" else -1
        if depth <= 0:
            return mark.end()
    return at


def query_problems(props: Mapping[str, str]) -> list[Problem]:
    """What is wrong with the keys of a query beyond what each may hold by itself."""
    if (props.get(SQL) or "").strip() and (props.get(SQL_FILE) or "").strip():
        return [Problem(SQL_FILE, f"Both {SQL} and {SQL_FILE} are given; only one can be.")]
    found = []
    try:
        _sql(props)
    except ConfigError as error:
        found.append(Problem(SQL_FILE, str(error)))
    items = [item.strip() for item in (props.get(TOPICS) or ".*").split(",")]
    try:
        compile_java_patterns(items, TOPICS)
    except ConfigError as error:
        found.append(Problem(TOPICS, str(error)))
    return found
