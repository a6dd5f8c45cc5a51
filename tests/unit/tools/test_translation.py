"""Checkpoints as a table and as JSON."""

from __future__ import annotations

from sparkmirror.formats.mirror import BY_TIME, Checkpoint
from sparkmirror.tools.translation import table, translations

ROWS = translations(
    "A",
    [
        Checkpoint("billing", "A.orders", 10, 1200, 900, "note"),
        Checkpoint("billing", "A.orders", 2, 5, 4),
        Checkpoint("audit", "A.clicks", 0, 7, 7),
    ],
)


def test_rows_are_sorted_by_group_topic_and_partition() -> None:
    assert [(row.group, row.partition) for row in ROWS] == [
        ("audit", 0),
        ("billing", 2),
        ("billing", 10),
    ]


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert table(ROWS) == [
        "SOURCE  GROUP    TOPIC     PARTITION  UPSTREAM  DOWNSTREAM  METADATA",
        "A       audit    A.clicks          0         7           7  -",
        "A       billing  A.orders          2         5           4  -",
        "A       billing  A.orders         10      1200         900  note",
    ]


def test_no_rows_leave_the_heading() -> None:
    assert table([]) == ["SOURCE  GROUP  TOPIC  PARTITION  UPSTREAM  DOWNSTREAM  METADATA"]


def test_json_has_every_field() -> None:
    assert ROWS[2].as_json() == {
        "source": "A",
        "group": "billing",
        "topic": "A.orders",
        "partition": 10,
        "upstream_offset": 1200,
        "downstream_offset": 900,
        "metadata": "note",
    }


def test_what_was_found_by_time_has_no_offset_upstream() -> None:
    (row,) = translations("A", [Checkpoint("billing", "A.orders", 3, BY_TIME, 17)])
    assert table([row])[1] == "A       billing  A.orders          3   by time          17  -"
    assert row.as_json()["upstream_offset"] is None
