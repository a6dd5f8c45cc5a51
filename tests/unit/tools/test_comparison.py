"""The judge of mirrors finds what is missing, repeated or changed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.kafka.records import NewRecord
from sparkmirror.tools.comparison import Difference, compare_partition

SOURCE = [
    NewRecord(i, 1_000 + i, b"k%d" % i, b"v%d" % i, [("h", b"%d" % i), ("n", None)])
    for i in range(20)
]


def verdict(
    source: Sequence[NewRecord], target: Sequence[NewRecord]
) -> tuple[int, Difference | None]:
    return compare_partition("t", 0, iter(source), iter(target))


def test_equal_partitions_are_equal_at_other_offsets() -> None:
    moved = [record._replace(offset=record.offset + 100) for record in SOURCE]
    assert verdict(SOURCE, moved) == (20, None)
    assert verdict([], []) == (0, None)


def test_a_record_without_a_time_may_get_any_when_it_is_copied() -> None:
    timeless = [row._replace(timestamp=-1) for row in SOURCE]
    assert verdict(timeless, SOURCE) == (20, None)
    _, difference = verdict(timeless, [*SOURCE[:5], SOURCE[4]._replace(timestamp=9), *SOURCE[5:]])
    assert difference is not None
    assert difference.kind == "twice"
    _, difference = verdict(SOURCE, timeless)
    assert difference is not None
    assert difference.kind == "changed"


@given(st.integers(0, 19))
def test_a_missing_record_is_found(lost: int) -> None:
    equal, difference = verdict(SOURCE, SOURCE[:lost] + SOURCE[lost + 1 :])
    assert equal == lost
    assert difference is not None
    assert (difference.kind, difference.source_offset) == ("missing", lost)


@given(st.integers(1, 20), st.integers(1, 20))
def test_a_repeated_stretch_is_found(at: int, length: int) -> None:
    start = max(0, at - length)
    equal, difference = verdict(SOURCE, SOURCE[:at] + SOURCE[start:at] + SOURCE[at:])
    assert equal == at
    assert difference is not None
    assert difference.kind == "twice"


@pytest.mark.parametrize(
    "change",
    [
        lambda r: r._replace(key=None),
        lambda r: r._replace(value=b"other"),
        lambda r: r._replace(timestamp=r.timestamp + 1),
        lambda r: r._replace(headers=list(reversed(r.headers))),
        lambda r: r._replace(headers=[]),
    ],
)
def test_any_change_is_found(change: Callable[[NewRecord], NewRecord]) -> None:
    target = [*SOURCE[:7], change(SOURCE[7]), *SOURCE[8:]]
    assert verdict(SOURCE, target) == (7, Difference("t", 0, "changed", 7, 7))


def test_swapped_records_are_found() -> None:
    target = [*SOURCE[:3], SOURCE[4], SOURCE[3], *SOURCE[5:]]
    equal, difference = verdict(SOURCE, target)
    assert equal == 3
    assert difference is not None


def test_a_record_that_the_source_never_had_is_found() -> None:
    extra = NewRecord(20, 1, b"x", b"y", [])
    equal, difference = verdict(SOURCE, [*SOURCE, extra])
    assert (equal, difference) == (20, Difference("t", 0, "changed", 20, 20))
    assert str(difference).startswith("t-0: changed, at offset 20 of the source")
