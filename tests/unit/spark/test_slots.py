"""Spark's slots are shared: nobody waits for one that another job keeps."""

from __future__ import annotations

from sparkmirror.spark.slots import Slots


class Job:
    def __init__(self) -> None:
        self.told: list[int] = []

    def share_changed(self, share: int) -> None:
        self.told.append(share)


def test_each_job_has_an_equal_share_and_hears_when_it_shrinks() -> None:
    slots, one, other = Slots(), Job(), Job()
    slots.enter(one, 8)
    assert slots.share(8) == 8
    slots.enter(other, 8)
    slots.enter(other, 8)
    assert slots.share(8) == 4
    assert (one.told, other.told) == ([4], [])
    slots.leave(one, 8)
    slots.leave(one, 8)
    assert slots.share(8) == 8
    assert other.told == [8]


def test_with_more_jobs_than_slots_each_has_one() -> None:
    slots = Slots()
    for _ in range(5):
        slots.enter(Job(), 2)
    assert slots.share(2) == 1
