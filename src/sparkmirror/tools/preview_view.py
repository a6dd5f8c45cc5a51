"""How a preview is shown: what became of records in; tables for a terminal, or a document for scripts, out."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sparkmirror.transforms.record import ConnectRecord, Headers

from .preview import Fate, Preview, Row

_MOST = 400
"""Characters of a value that are shown."""
_MOST_HINT = 80
"""Of a failure beside its record: the whole is below."""
_MOST_FAILURES = 5
_SAME, _NEW, _GONE, _BAD = "dim", "bold green", "yellow", "bold red"


# -- for people -----------------------------------------------------------------------------------


def shown(preview: Preview, *, explain: bool = False) -> Iterator[RenderableType]:
    """The types, the records side by side, and how many fared how."""
    yield Text(f"flow {preview.flow}, topic {preview.topic}", style="bold")
    yield Text(f"The query gives {_columns(preview)}.")
    if explain:
        yield Text("")
        yield Text("Spark's plan", style="bold")
        yield Text(preview.plan)
    yield Text("")
    if preview.rows:
        yield table(preview)
    yield from _failures(preview)
    yield Text(summary(preview), style=_BAD if preview.count(Fate.FAILED) else "bold")


def _columns(preview: Preview) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in preview.columns)


def table(preview: Preview) -> Table:
    """A few lines for each record: what it was, and what it becomes; what stays as it is is dim."""
    view = Table(show_lines=False, expand=False)
    view.add_column("record", no_wrap=True)
    view.add_column("")
    view.add_column("before", overflow="fold", ratio=1)
    view.add_column("after", overflow="fold", ratio=1)
    for row in preview.rows:
        lines = list(_lines(row, preview))
        for place, (name, before, after) in enumerate(lines):
            is_last = place == len(lines) - 1
            label = f"{row.before.partition}@{row.before.offset}" if place == 0 else ""
            view.add_row(label, Text(name, style="dim"), before, after, end_section=is_last)
    return view


def _lines(row: Row, preview: Preview) -> Iterator[tuple[str, Text, Text]]:
    before, after = row.before, row.after
    where = Text(f"{before.topic}-{before.partition}")
    if after is None:
        yield "topic", where, _fate(row)
        for name, text in _texts(before).items():
            if text is not None:
                yield name, Text(text), Text("")
        return
    is_home = (after.topic, after.partition) == (preview.remote, before.partition)
    target = Text(f"{after.topic}-{after.partition}", style=_SAME if is_home else _NEW)
    yield "topic", where, target
    new = _texts(after)
    for name, text in _texts(before).items():
        other = new[name]
        if text is None and other is None:
            continue
        is_same = _raw(before, name) == _raw(after, name)
        yield name, Text(text or ""), Text(other or "", style=_SAME if is_same else _NEW)


def _fate(row: Row) -> Text:
    match row.fate:
        case Fate.FAILED:
            hint = row.message
            short = hint if len(hint) <= _MOST_HINT else f"{hint[:_MOST_HINT].rstrip()}…"
            return Text(f"failed: {short}", style=_BAD)
        case Fate.FILTERED:
            return Text("dropped by the transforms", style=_GONE)
        case _:
            return Text("dropped", style=_GONE)


def _raw(record: ConnectRecord, name: str) -> object:
    return getattr(record, name)


def _texts(record: ConnectRecord) -> dict[str, str | None]:
    """The fields of a record as they are shown; None for one that need not be."""
    return {
        "timestamp": time_text(record.timestamp),
        "key": cut(readable(record.key)),
        "value": cut(readable(record.value)),
        "headers": _headers(record.headers),
    }


def _headers(headers: Headers) -> str | None:
    if not headers:
        return None
    return cut(", ".join(f"{name}={readable(value)}" for name, value in headers))


def readable(data: bytes | None) -> str:
    """Bytes as text; what is none is escaped."""
    if data is None:
        return "null"
    text = data.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut(text: str) -> str:
    """Not more of it than can be looked through."""
    return text if len(text) <= _MOST else f"{text[:_MOST]}… ({len(text):,} characters)"


def time_text(timestamp: int) -> str:
    """Milliseconds as a point in time (UTC); as they are if they are none."""
    try:
        moment = datetime.fromtimestamp(timestamp / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return str(timestamp)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _failures(preview: Preview) -> Iterator[Text]:
    """Each message once, with the records that it is of."""
    failed: dict[str, list[ConnectRecord]] = {}
    for row in preview.rows:
        if row.fate is Fate.FAILED:
            failed.setdefault(row.message, []).append(row.before)
    for message, records in list(failed.items())[:_MOST_FAILURES]:
        places = ", ".join(f"{r.partition}@{r.offset}" for r in records[:_MOST_FAILURES])
        more = f" and {len(records) - _MOST_FAILURES} more" if len(records) > _MOST_FAILURES else ""
        yield Text(f"{places}{more}: {cut(message)}", style="red")


def summary(preview: Preview) -> str:
    if not preview.rows:
        return f"Topic {preview.topic} has no records to try the query on."
    dropped = preview.count(Fate.DROPPED, Fate.FILTERED)
    failed = preview.count(Fate.FAILED)
    text = (
        f"{len(preview.rows)} record(s) read: {preview.count(Fate.KEPT)} kept, {dropped} dropped, "
        f"{failed} failed."
    )
    if failed and preview.tolerates:
        return f"{text} The flow goes on without those that fail (errors.tolerance=all)."
    return f"{text} The flow stops at the first that fails." if failed else text


# -- for scripts ----------------------------------------------------------------------------------


def document(preview: Preview, *, explain: bool = False) -> dict[str, Any]:
    """All of it. Bytes that are text are strings, others {"base64": ...}."""
    found: dict[str, Any] = {
        "flow": preview.flow,
        "topic": preview.topic,
        "sql": preview.sql,
        "columns": [{"name": name, "type": kind} for name, kind in preview.columns],
        "records": [
            {
                "outcome": str(row.fate),
                "before": _record(row.before),
                "after": None if row.after is None else _record(row.after),
                "error": row.message or None,
            }
            for row in preview.rows
        ],
        "counts": {
            "read": len(preview.rows),
            **{str(fate): preview.count(fate) for fate in Fate},
        },
    }
    return {**found, "plan": preview.plan} if explain else found


def _record(record: ConnectRecord) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _bytes(record.key),
        "value": _bytes(record.value),
        "headers": [{"key": name, "value": _bytes(value)} for name, value in record.headers],
    }


def _bytes(data: bytes | None) -> str | dict[str, str] | None:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
