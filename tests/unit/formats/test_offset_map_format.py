"""Segments of the offset map: what is written is read again, and what is damaged is told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.formats import offset_map
from sparkmirror.formats.mirror import MalformedRecord
from sparkmirror.formats.offset_map import Place, Run, Segment, TopicIds, packed, unpacked
from sparkmirror.offsets.segments import of_runs

PLACE = Place("orders", 3, "A.orders", 3)
IDS = TopicIds(b"s" * 16, b"t" * 16)


@given(st.lists(st.integers(0, 1 << 62)))
def test_numbers(numbers: list[int]) -> None:
    assert unpacked(packed(numbers)) == numbers


def test_small_numbers_take_a_byte() -> None:
    assert packed([0, 127, 5]) == b"\x00\x7f\x05"
    assert packed([300]) == b"\xac\x02"


def test_no_number_is_larger_than_an_offset() -> None:
    """One of any length would cost its square."""
    assert unpacked(packed([(1 << 63) - 1])) == [(1 << 63) - 1]
    with pytest.raises(ValueError, match="larger than any offset"):
        unpacked(b"\xff" * 50_000 + b"\x01")


@given(
    st.integers(0, 1 << 40),
    st.integers(0, 1 << 40),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2), st.integers(1, 5000)), min_size=1),
)
def test_segments(source: int, target: int, steps: list[tuple[int, int, int]]) -> None:
    runs = []
    for skip, jump, count in steps:
        source, target = source + skip, target + jump
        runs.append(Run(source, target, count))
        source, target = source + count, target + count
    segment = of_runs(PLACE, IDS, runs)
    key, value = offset_map.encode(segment)
    assert offset_map.decode(key, value) == segment
    assert offset_map.decode_key(key) == segment.key == (PLACE, runs[0].target)
    assert pairs(list(segment.runs())) == pairs(runs)


def pairs(runs: list[Run]) -> list[tuple[int, int]]:
    found = []
    for run in runs:
        found += [(run.source, run.target), (run.source_end - 1, run.target_end - 1)]
    # Where two runs follow each other they are one.
    inner = found[1:-1]
    kept = [
        row
        for one, two in zip(inner[::2], inner[1::2], strict=True)
        if (one[0] + 1, one[1] + 1) != two
        for row in (one, two)
    ]
    return [found[0], *kept, found[-1]]


def test_one_run_needs_no_pairs() -> None:
    segment = of_runs(PLACE, IDS, [Run(100, 7, 5), Run(105, 12, 95)])
    assert segment == Segment(PLACE, IDS, 100, 200, 7, 107)
    assert len(offset_map.encode(segment)[1]) == 2 + 32 + 24


@pytest.mark.parametrize(
    "damage",
    [
        lambda value: value[:-1],
        lambda value: value[:20],
        lambda value: b"",
        lambda value: b"\x00\x01" + value[2:],
        lambda value: value + b"\x80",
        lambda value: value + b"\x01\x02",
        lambda value: None,
    ],
)
def test_damage_is_told(damage: object) -> None:
    key, value = offset_map.encode(of_runs(PLACE, IDS, [Run(1, 1, 5), Run(9, 6, 5)]))
    with pytest.raises(MalformedRecord):
        offset_map.decode(key, damage(value))  # type: ignore[operator]


def test_a_key_that_is_none_is_told() -> None:
    with pytest.raises(MalformedRecord):
        offset_map.decode_key(b"\x00\x05abc")
