"""How previews are shown."""

from __future__ import annotations

import json
from typing import Any

from rich.console import Console

from sparkmirror.tools.preview import Fate, Preview, Row
from sparkmirror.tools.preview_view import cut, document, readable, shown, summary, time_text
from sparkmirror.transforms.record import ConnectRecord

TIME = 1_700_000_000_000


def before(offset: int, value: bytes | None = b"v", partition: int = 0) -> ConnectRecord:
    return ConnectRecord("orders", partition, offset, TIME, b"k", value, [("h", b"1")])


def kept(offset: int, **changes: Any) -> Row:
    row = before(offset)
    return Row(row, Fate.KEPT, row._replace(**{"topic": "A.orders", **changes}))


def preview(*rows: Row, tolerates: bool = False) -> Preview:
    return Preview(
        flow="A->B",
        topic="orders",
        remote="A.orders",
        sql="SELECT value FROM records",
        columns=(("key", "binary"), ("value", "string")),
        plan="* Project\n+- MapInArrow",
        rows=rows,
        tolerates=tolerates,
    )


def printed(found: Preview, *, colours: bool = False, explain: bool = False) -> str:
    console = Console(width=120, highlight=False, force_terminal=colours)
    with console.capture() as captured:
        for part in shown(found, explain=explain):
            console.print(part)
    return captured.get()


def test_before_and_after_stand_side_by_side() -> None:
    text = printed(preview(kept(7, value=b"masked", topic="other", partition=3)))
    lines = text.splitlines()
    assert lines[0] == "flow A->B, topic orders"
    assert lines[1] == "The query gives key binary, value string."
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    assert ["0@7", "topic", "orders-0", "other-3"] in cells
    assert ["", "value", "v", "masked"] in cells
    assert ["", "key", "k", "k"] in cells
    assert ["", "headers", "h=1", "h=1"] in cells
    assert ["", "timestamp", "2023-11-14T22:13:20.000Z", "2023-11-14T22:13:20.000Z"] in cells
    assert lines[-1] == "1 record(s) read: 1 kept, 0 dropped, 0 failed."


def test_what_stays_as_it_is_is_dim() -> None:
    text = printed(preview(kept(7, value=b"masked")), colours=True)
    value = next(line for line in text.splitlines() if "masked" in line)
    key = next(line for line in text.splitlines() if "key" in line and "binary" not in line)
    topic = next(line for line in text.splitlines() if "A.orders-0" in line)
    assert "\x1b[1;32mmasked" in value
    assert "\x1b[2mk" in key
    assert "\x1b[2mA.orders-0" in topic


def test_what_does_not_go_on() -> None:
    rows = (
        kept(1),
        Row(before(2), Fate.DROPPED),
        Row(before(3), Fate.FILTERED),
        Row(before(4, partition=1), Fate.FAILED, message="[CAST_INVALID_INPUT] 'x' is no INT."),
        Row(before(5, partition=1), Fate.FAILED, message="[CAST_INVALID_INPUT] 'x' is no INT."),
    )
    text = printed(preview(*rows))
    assert " dropped " in text
    assert "dropped by the transforms" in text
    assert "failed: [CAST_INVALID_INPUT] 'x' is no INT." in text
    assert "1@4, 1@5: [CAST_INVALID_INPUT] 'x' is no INT." in text
    told = summary(preview(*rows))
    assert (
        told
        == "5 record(s) read: 1 kept, 2 dropped, 2 failed. The flow stops at the first that fails."
    )
    assert summary(preview(*rows, tolerates=True)).endswith("(errors.tolerance=all).")


def test_a_topic_without_records_and_the_plan() -> None:
    text = printed(preview(), explain=True)
    assert "Topic orders has no records to try the query on." in text
    assert "+- MapInArrow" in text
    assert "MapInArrow" not in printed(preview())


def test_bytes_are_shown_readable_and_cut() -> None:
    assert readable(None) == "null"
    assert readable("grün [b]".encode()) == "grün [b]"
    assert readable(b"\x00\x00\x00\x00\x05ab\ncd\xff") == "\\x00\\x00\\x00\\x00\\x05ab\\ncd\\xff"
    assert cut("x" * 400) == "x" * 400
    assert cut("x" * 1234) == "x" * 400 + "… (1,234 characters)"
    assert time_text(-1) == "1969-12-31T23:59:59.999Z"
    assert time_text(1 << 62) == str(1 << 62)
    # Brackets in a value are no markup.
    assert "[red]v[/red]" in printed(preview(kept(1, value=b"[red]v[/red]")))


def test_the_document_for_scripts() -> None:
    rows = (
        kept(1, value=b"\xff\x00", headers=[("n", None)]),
        Row(before(2, None), Fate.FAILED, message="bad"),
    )
    found = json.loads(json.dumps(document(preview(*rows))))
    assert found["counts"] == {"read": 2, "kept": 1, "dropped": 0, "filtered": 0, "failed": 1}
    assert found["columns"] == [
        {"name": "key", "type": "binary"},
        {"name": "value", "type": "string"},
    ]
    first, second = found["records"]
    assert first["before"]["value"] == "v"
    assert first["after"] == {
        "topic": "A.orders",
        "partition": 0,
        "offset": 1,
        "timestamp": TIME,
        "key": "k",
        "value": {"base64": "/wA="},
        "headers": [{"key": "n", "value": None}],
    }
    assert (second["outcome"], second["after"], second["error"]) == ("failed", None, "bad")
    assert second["before"]["value"] is None
    assert "plan" not in found
    assert document(preview(), explain=True)["plan"].startswith("* Project")
