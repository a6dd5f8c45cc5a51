"""Which checkpoints group sync commits on a target that tells no topic ids (Kafka before 2.8)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.connectors.checkpoint_task import CheckpointTask
from sparkmirror.formats.mirror import Checkpoint
from sparkmirror.formats.offset_map import NO_ID, Segment, TopicIds
from sparkmirror.offsets.checkpoints import CheckpointStore
from tests.unit.offsets.segments import segment
from tests.unit.offsets.test_map_reader import reader

NO_IDS = TopicIds()
KEY = ("A.t", 0)
REAL = b"r" * 16


def is_current(
    segments: list[Segment], checkpoint: Checkpoint, written_as: bytes | None, there: bytes
) -> bool:
    """Whether group g may be moved to its checkpoint, which was of the topic `written_as`."""
    store = CheckpointStore(["g"])
    store.put(checkpoint, written_as)
    topics = SimpleNamespace(id_of=lambda name: there, recreated={})
    task = SimpleNamespace(_store=store, _topics=topics, _reader=reader(segments))
    return CheckpointTask._is_current(cast(Any, task), "g", KEY)


OLD = segment((0, 0, 1000), ids=NO_IDS)
REFILLED = segment((500, 0, 900), ids=NO_IDS)
"""The topic was created again when the source had no records 0 to 499 any more."""


@pytest.mark.parametrize("written_as", [NO_ID, None], ids=["by this task", "by one before"])
def test_a_checkpoint_of_a_topic_that_was_filled_again_beyond_it_is_not_committed(
    written_as: bytes | None,
) -> None:
    """Record 800 is at 300 now: at 800, the group would miss 500 records."""
    old = Checkpoint("g", "A.t", 0, 800, 800)
    assert is_current([OLD], old, written_as, NO_ID)
    assert not is_current([OLD, REFILLED], old, written_as, NO_ID)
    assert is_current([OLD, REFILLED], Checkpoint("g", "A.t", 0, 800, 300), written_as, NO_ID)


@pytest.mark.parametrize("is_read", [True, False])
def test_groups_are_moved_while_the_source_is_lost(is_read: bool) -> None:
    """A reader that follows all of its topics would ask the source; its map, which is on the target, must be read."""
    store = CheckpointStore(["g"])
    store.put(Checkpoint("g", "A.t", 0, 800, 800), NO_ID)
    moved: list[Any] = []
    task = SimpleNamespace(
        _reader=SimpleNamespace(follow_map=lambda: is_read),
        _store=store,
        _homecoming=SimpleNamespace(joined=lambda onward: onward),
        _move=moved.append,
    )
    CheckpointTask._sync_group_offsets(cast(Any, task), lambda: True)
    assert [list(groups) for groups in moved] == ([["g"]] if is_read else [])


def test_also_as_long_as_the_refill_is_not_told_to_the_end() -> None:
    old = Checkpoint("g", "A.t", 0, 800, 800)
    begun = segment((500, 0, 100), ids=NO_IDS)
    later = segment((600, 100, 750), ids=NO_IDS)
    assert not is_current([OLD, begun, later], old, NO_ID, NO_ID)


def test_a_group_that_is_ahead_of_what_is_copied_is_not_held_back() -> None:
    assert is_current([OLD], Checkpoint("g", "A.t", 0, 1000, 1000), NO_ID, NO_ID)
    assert is_current([OLD], Checkpoint("g", "A.t", 0, 1200, 1000), NO_ID, NO_ID)


def test_what_was_found_by_time_is_not_held_against_the_map() -> None:
    by_time = Checkpoint("g", "A.t", 0, -1, 800)
    assert by_time.is_by_time
    assert is_current([OLD], by_time, NO_ID, NO_ID)


def test_where_ids_tell_they_alone_count() -> None:
    old = Checkpoint("g", "A.t", 0, 800, 800)
    assert is_current([OLD, REFILLED], old, REAL, REAL)
    assert not is_current([OLD], old, REAL, b"x" * 16)
