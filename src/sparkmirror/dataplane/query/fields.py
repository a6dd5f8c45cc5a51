"""Fields of JSON, read before Spark is given a record: documents in; what `get_json_object` gives for each, or itself, out.

Spark's reader decodes each document into characters of its own and takes several times as long. What is read here must be what
Spark would say, to the byte: so only documents are read that are JSON to the letter and within the limits of Spark's reader, and
only texts, whole numbers, booleans and nothing are taken from them. All others are left to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import simdjson

_SHORT = 1000
"""Bytes. A shorter document is within all of these limits, which are those of Spark's reader."""
_MOST_BYTES = 50_000  # in the name of a field
_MOST_DEEP = 1000  # objects and arrays in one another
_TOO_LONG = re.compile(rb"[0-9+\-.eE]{1001}")  # a number
_MARK_EVERY, _MARKS = 100, b"0" * 10  # of such a number, at least so many
_DIGITS = bytes(ord("0") if byte in b"0123456789+-.eE" else ord(" ") for byte in range(256))
_LOOK_AGAIN = 32
"""Batches that go by after one of which most documents had to be left to Spark."""

Texts = list[str | None]


class _LeftToSparkError(Exception):
    """Whether Spark would say the same is not sure."""


class FieldReader:
    """Reads the same fields of many documents.

    Invariant: between two documents nothing of the first is held, since the parser has room for one.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = [path.split(".")[1:] for path in paths]
        self._parse = simdjson.Parser().parse
        self._passing = 0

    def read(
        self, documents: Sequence[bytes | None], *, is_rest: bool = False
    ) -> tuple[Sequence[bytes | None] | None, list[Texts]]:
        """The documents that are left to Spark, null for the others (None: there are none); by path the texts of the rest.

        `is_rest`: they are what was left of more, and nothing can be told by them of those that follow.
        """
        count = len(documents)
        columns: list[Texts] = [[None] * count for _ in self._paths]
        if self._passing and not is_rest:
            self._passing -= 1
            return documents, columns
        read, wanted = self._read, list(zip(self._paths, columns, strict=True))
        unread: dict[int, bytes] = {}
        for place, document in enumerate(documents):
            if document is not None:
                try:
                    read(document, place, wanted)
                except (_LeftToSparkError, ValueError, RuntimeError, TypeError):
                    unread[place] = document
        for place in unread:
            for texts in columns:
                texts[place] = None
        if 2 * len(unread) > count and not is_rest:
            self._passing = _LOOK_AGAIN
        return [unread.get(place) for place in range(count)] if unread else None, columns

    def _read(self, document: bytes, place: int, wanted: list[tuple[list[str], Texts]]) -> None:
        if document[:1] != b"{" or (len(document) > _SHORT and not _is_within_limits(document)):
            raise _LeftToSparkError
        root: Any = self._parse(document)
        for path, texts in wanted:
            try:
                found = root[path[0]]
                for name in path[1:]:
                    found = found[name]
            except (KeyError, TypeError):
                found = None
            texts[place] = found if found.__class__ is str else _text(root, path, document)


def _text(root: Any, path: list[str], document: bytes) -> str | None:
    found = root
    try:
        for name in path:
            found = found[name]
    except KeyError:
        if found is root:
            return None
        found = None
    kind = found.__class__
    if kind is str or kind is int:
        return str(found)
    if kind is bool:
        return "true" if found else "false"
    if found is None and _is_unique(path, document):
        return None
    raise _LeftToSparkError


def _is_unique(path: list[str], document: bytes) -> bool:
    """Whether there is no second field of these names, which Spark would try after one that is null."""
    return b"\\u" not in document and all(
        document.count(b'"%s"' % name.encode()) <= 1 for name in path
    )


def _is_within_limits(document: bytes) -> bool:
    if len(document) > _MOST_BYTES or document.count(b"{") + document.count(b"[") > _MOST_DEEP:
        return False
    may_be_too_long = _MARKS in document[::_MARK_EVERY].translate(_DIGITS)
    return not (may_be_too_long and _TOO_LONG.search(document))
