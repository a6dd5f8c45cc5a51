"""Replacements in texts that are made behind Spark: what a query kept in; the same with the texts that it gives out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from sparkmirror.transforms.record import ConnectRecord

from .columns import Edit
from .rows import column
from .slices import Given


def completed(given: Given, rows: Sequence[ConnectRecord], edits: Mapping[str, Edit]) -> Given:
    """With the texts that are made here. Spark has made those of the records in which there is none (`unfit`)."""
    if not given:
        return given
    columns = dict(given.columns)
    for name, edit in edits.items():
        own, by_spark = column(rows, edit.column), columns[name]
        texts = [own[row] for row in given.rows]
        if by_spark.count(None) == len(texts):
            columns[name] = edited(texts, edit)
            continue
        both = list(zip(texts, by_spark, strict=True))
        here = edited([text if made is None else None for text, made in both], edit)
        columns[name] = [
            text if made is None else made for text, made in zip(here, by_spark, strict=True)
        ]
    return given._replace(columns=columns)


def edited(texts: Sequence[bytes | None], edit: Edit) -> list[bytes | None]:
    """Texts in UTF-8, and what becomes of them."""
    found = pa.array(texts, pa.large_binary()).view(pa.large_string())
    for pattern, text in edit.replacements:
        found = pc.replace_substring_regex(found, pattern=pattern, replacement=text)
    return list(found.view(pa.large_binary()).to_pylist())


def is_text(value: bytes) -> bool:
    """Whether it is UTF-8."""
    if value.isascii():
        return True
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def can_be_made(edit: Edit) -> bool:
    """Whether RE2 takes the patterns: they may be too large for it."""
    try:
        edited([b""], edit)
    except pa.ArrowInvalid:
        return False
    return True
