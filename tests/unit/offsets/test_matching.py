"""Two logs of the same records, each with some that the other has not."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkmirror.formats.offset_map import Run
from sparkmirror.offsets import matching
from sparkmirror.offsets.matching import Seen, matched


def log(*contents: int, begin: int = 0) -> list[Seen]:
    return [Seen(begin + n, content, content) for n, content in enumerate(contents)]


def test_the_same() -> None:
    assert list(matched(log(*range(5), begin=100), log(*range(5)))) == [Run(100, 0, 5)]


def test_nothing_in_common() -> None:
    assert list(matched(log(1, 2, 3), log(7, 8, 9))) == []
    assert list(matched(log(), log(1))) == []


def test_each_has_some_of_its_own() -> None:
    source = log(1, 2, 50, 51, 3, 4, 5)
    target = log(1, 2, 3, 90, 4, 5)
    assert list(matched(source, target)) == [Run(0, 0, 2), Run(4, 2, 1), Run(5, 4, 2)]


def test_one_is_far_ahead() -> None:
    count = 3 * matching.LOOK_AHEAD
    source, target = log(*range(count)), log(*range(count - 10, count))
    assert list(matched(source, target)) == [Run(count - 10, 0, 10)]
    assert list(matched(target, source)) == [Run(0, count - 10, 10)]


@given(st.lists(st.sampled_from(["both", "source", "target"]), max_size=80))
@settings(max_examples=300)
def test_all_that_is_the_same_is_found(steps: list[str]) -> None:
    source: list[Seen] = []
    target: list[Seen] = []
    wanted = []
    for content, where in enumerate(steps):
        if where == "both":
            wanted.append((len(source), len(target)))
        if where != "target":
            source.append(Seen(len(source), content, 0))
        if where != "source":
            target.append(Seen(len(target), content, 0))
    runs = list(matched(source, target))
    found = [(run.source + n, run.target + n) for run in runs for n in range(run.length)]
    assert found == wanted


@given(st.lists(st.integers(0, 3), max_size=60), st.lists(st.integers(0, 3), max_size=60))
def test_what_is_found_is_the_same(source: list[int], target: list[int]) -> None:
    """Also where many records have the same content."""
    last = (-1, -1)
    for run in matched(log(*source), log(*target)):
        assert run.source > last[0] and run.target > last[1]
        last = (run.source_end - 1, run.target_end - 1)
        assert source[run.source : run.source_end] == target[run.target : run.target_end], (
            "another record"
        )


@given(
    st.lists(st.tuples(st.sampled_from(["both", "source", "target"]), st.booleans()), max_size=40)
)
def test_a_record_without_a_time_is_found_in_its_copy_that_has_one(
    steps: list[tuple[str, bool]],
) -> None:
    source: list[Seen] = []
    target: list[Seen] = []
    wanted = []
    for content, (where, is_timed) in enumerate(steps):
        timed, timeless = 1000 + content, content
        if where == "both":
            wanted.append((len(source), len(target)))
        if where != "target":
            digest, time = (timed, 5) if is_timed else (timeless, -1)
            source.append(Seen(len(source), digest, time, timeless))
        if where != "source":
            target.append(Seen(len(target), timed, 5, timeless))
    runs = list(matched(source, target))
    assert [(r.source + n, r.target + n) for r in runs for n in range(r.length)] == wanted
