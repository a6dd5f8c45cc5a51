"""Which offset syncs are kept and how they translate: MirrorMaker 2's own answers, and the invariants behind them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkmirror.formats.mirror import OffsetSync
from sparkmirror.offsets.sync_store import SLOTS, TOO_OLD, OffsetSyncStore

# mode | syncs at start | syncs after it | the 64 slots | translations (-999: nothing is known), as MirrorMaker 2 gives them.
CASES = Path(__file__).with_name("offset_sync_store_cases.txt").read_text().splitlines()
NOTHING = -999
Pairs = list[tuple[int, int]]


def pairs(text: str) -> Pairs:
    found = (item.split(":") for item in text.split(",") if item)
    return [(int(up), int(down)) for up, down in found]


def add(store: OffsetSyncStore, syncs: Iterable[tuple[int, int]]) -> None:
    for upstream, downstream in syncs:
        store.add(OffsetSync("t", 0, upstream, downstream))


def filled(live: Pairs, start: Pairs = [], *, must_read_to_end: bool = False) -> OffsetSyncStore:  # noqa: B006
    store = OffsetSyncStore(must_read_to_end=must_read_to_end)
    add(store, start)
    store.finish_loading()
    add(store, live)
    return store


def slots(store: OffsetSyncStore) -> Pairs:
    return [(s.upstream_offset, s.downstream_offset) for s in store.slots("t", 0)]


def shape(store: OffsetSyncStore) -> dict[int, int]:
    """Upstream offset at each slot where it changes."""
    found = [up for up, _ in slots(store)]
    return {i: up for i, up in enumerate(found) if i == 0 or up != found[i - 1]}


def steps(first: int, last: int, step: int, shift: int = 0) -> Pairs:
    return [(up, up + shift) for up in range(first, last + 1, step)]


def translated(store: OffsetSyncStore, *offsets: int) -> list[int | None]:
    return [store.translate("t", 0, offset) for offset in offsets]


def test_all_cases_are_there() -> None:
    assert len(CASES) == 80


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_the_same_as_mirrormaker(case: str) -> None:
    mode, start, live, kept, translations = case.split("|")
    store = filled(pairs(live), pairs(start), must_read_to_end=mode == "true")
    assert slots(store) == pairs(kept)
    for offset, expected in pairs(translations.replace("->", ":")):
        known = store.translate("t", 0, offset)
        assert (NOTHING if known is None else known) == expected, offset


def test_one_by_one() -> None:
    expected = {
        3: {0: 3, 1: 2, 2: 0},
        5: {0: 5, 1: 4, 2: 2, 3: 0},
        8: {0: 8, 1: 7, 2: 6, 3: 4, 4: 0},
        10: {0: 10, 1: 9, 2: 8, 3: 4, 4: 0},
    }
    for last, slots_kept in expected.items():
        assert shape(filled(steps(0, last, 1))) == slots_kept
    store = filled(steps(0, 10, 1, shift=1000))
    assert translated(store, 0, 1, 2, 3, 4) == [1000, 1001, 1001, 1001, 1004]
    assert translated(store, 5, 6, 7, 8, 9) == [1005, 1005, 1005, 1008, 1009]
    assert translated(store, 10, 11, 50) == [1010, 1011, 1011]


def test_every_hundredth() -> None:
    assert shape(filled(steps(0, 400, 100))) == {0: 400, 8: 300, 9: 200, 10: 0}
    assert shape(filled(steps(0, 800, 100))) == {0: 800, 8: 700, 9: 600, 10: 400, 11: 0}
    store = filled(steps(0, 1000, 100))
    assert shape(store) == {0: 1000, 8: 900, 9: 800, 10: 400, 11: 0}
    assert translated(store, 50, 100, 150, 250) == [1, 1, 1, 1]
    assert translated(store, 450, 650, 850, 999, 1000, 1001) == [401, 401, 801, 901, 1000, 1001]


def test_every_tenth() -> None:
    store = filled(steps(0, 10000, 10))
    expected = "0=10000 5=9990 6=9960 7=9900 8=9840 9=9600 10=9120 11=8640 12=7680 13=3840 14=0"
    assert shape(store) == _shape(expected)
    assert translated(store, 4999, 8000, 9985, 9999) == [3841, 7681, 9961, 9991]


def test_without_the_last_checkpoints_only_the_newest_sync_of_the_start_counts() -> None:
    start = steps(0, 1000, 10)
    careful = filled([], start, must_read_to_end=True)
    assert shape(careful) == {0: 1000}
    add(careful, steps(1010, 10000, 10))
    expected = "0=10000 5=9990 6=9970 7=9940 8=9880 9=9640 10=9160 11=8680 12=6760 13=4840 14=1000"
    assert shape(careful) == _shape(expected)
    assert translated(careful, 999, 1000, 4839, 4840, 9989) == [TOO_OLD, 1000, 1001, 4840, 9971]

    knowing = filled([], start)
    assert shape(knowing) == _shape("0=1000 5=990 6=960 7=900 8=840 9=720 10=480 11=0")
    assert translated(knowing, 5, 479, 480, 719, 989, 999) == [1, 1, 480, 481, 961, 991]


def test_irregular_steps() -> None:
    syncs = pairs("5:5,6:6,9:8,10:9,30:20,31:21,32:22,100:50,101:51,500:60")
    assert shape(filled(syncs[:4])) == {0: 10, 1: 9, 3: 5}
    assert shape(filled(syncs[:5])) == {0: 30, 6: 5}
    assert shape(filled(syncs[:7])) == {0: 32, 1: 31, 2: 30, 6: 5}
    store = filled(syncs)
    assert shape(store) == {0: 500, 10: 5}
    assert translated(store, 4, 5, 7, 499, 500, 501) == [TOO_OLD, 5, 6, 6, 60, 61]


def test_a_rewind_forgets_everything_before_it() -> None:
    store = filled([(100, 200), (200, 300), (150, 400)])
    assert slots(store) == [(150, 400)] * SLOTS
    assert translated(store, 100, 150) == [TOO_OLD, 400]
    add(store, [(151, 401)])
    assert translated(store, 151, 152) == [401, 402]


def test_the_same_upstream_offset_twice() -> None:
    store = filled([(0, 0), (10, 10), (10, 99), (20, 20)])
    assert slots(store)[0] == (20, 20)
    assert slots(store)[5] == (10, 99)
    assert slots(store)[6] == (0, 0)
    assert translated(store, 10, 11, 9) == [99, 100, 1]


def test_the_translation_of_one_offset_can_go_back() -> None:
    syncs = [(up, up - 7) for up in range(11, 18)]
    assert filled(syncs[:-1]).translate("t", 0, 13) == 6
    assert translated(filled(syncs), 13, 14) == [5, 5]


def test_nothing_is_translated_before_the_log_was_read() -> None:
    store = OffsetSyncStore(must_read_to_end=False)
    add(store, [(0, 0)])
    assert store.translate("t", 0, 0) is None
    store.finish_loading()
    assert store.translate("t", 0, 0) == 0
    assert store.translate("t", 1, 0) is None
    assert store.slots("t", 1) == ()


def test_offsets_near_the_end_of_their_range() -> None:
    top = 2**63 - 1
    store = filled([(top - 1000, 0), (top - 10, 10), (top, 20)])
    assert translated(store, top, top - 1, top - 2000) == [20, 11, TOO_OLD]


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 50)), min_size=1, max_size=120),
    st.integers(0, 100_000),
)
def test_distances_hold_and_nothing_is_translated_too_far(moves: Pairs, start: int) -> None:
    syncs = [(start, start // 2)]
    for up, down in moves:
        syncs.append((syncs[-1][0] + up, syncs[-1][1] + down))
    store = filled(syncs)
    kept = store.slots("t", 0)
    assert slots(store)[0] == syncs[-1]
    assert slots(store)[-1] == syncs[0]
    for i in range(SLOTS):
        for j in range(i + 1, SLOTS):
            newer, older = kept[i].upstream_offset, kept[j].upstream_offset
            if kept[i] is not kept[j]:
                assert newer <= older + 2**j - 2**i
                assert newer >= older + 2 ** max(i - 2, 0)
    for up, down in syncs:
        known = store.translate("t", 0, up)
        assert known is not None and known <= down


def _shape(text: str) -> dict[int, int]:
    return {int(slot): int(up) for slot, up in (item.split("=") for item in text.split())}
