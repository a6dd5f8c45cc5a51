"""What `sync-group` says that it has committed."""

from __future__ import annotations

from sparkmirror.offsets.groups import GroupOffset, Offsets
from sparkmirror.tools.sync_group import Outcome, moves

DUE = {
    ("A.orders", 10): GroupOffset(7),
    ("A.orders", 2): GroupOffset(40, "note"),
    ("A.clicks", 0): GroupOffset(0),
}


def test_a_line_for_each_offset_old_and_new() -> None:
    before: Offsets = {("A.orders", 10): GroupOffset(3), ("A.orders", 2): None}
    assert moves(DUE, before, DUE) == [
        "A.clicks-0 - -> 0",
        "A.orders-2 - -> 40",
        "A.orders-10 3 -> 7",
    ]


def test_what_was_not_taken_is_not_told() -> None:
    before: Offsets = {("A.orders", 10): GroupOffset(3)}
    now: Offsets = {("A.orders", 10): GroupOffset(3), ("A.orders", 2): GroupOffset(40)}
    assert moves(DUE, before, now) == ["A.orders-2 - -> 40"]


def test_done_is_where_nothing_stands_in_the_way() -> None:
    assert [outcome for outcome in Outcome if outcome.is_done] == [
        Outcome.MOVED,
        Outcome.UP_TO_DATE,
    ]
