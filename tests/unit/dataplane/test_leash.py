"""Tasks are told to end by a connection that is cut."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest

from sparkmirror.dataplane.leash import Leash, LeashEnd, Tether


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def leash() -> Leash:
    return Leash("127.0.0.1", is_local=True)


def test_a_task_sees_that_its_job_is_let_go_and_no_other(leash: Leash) -> None:
    jobs = [str(uuid.uuid4()), str(uuid.uuid4())]
    tethers = [Tether(leash.hold(job)) for job in jobs]
    assert soon(lambda: all(len(held) == 1 for held in leash._held.values()))
    assert not any(tether.is_cut for tether in tethers)
    leash.let_go(jobs[0])
    assert soon(lambda: tethers[0].is_cut)
    assert not tethers[1].is_cut
    for tether in tethers:
        tether.close()
    assert tethers[0].is_cut, "it stays cut"
    leash.close()


def test_a_task_that_comes_too_late_is_cut_at_once(leash: Leash) -> None:
    job = str(uuid.uuid4())
    end = leash.hold(job)
    leash.let_go(job)
    tether = Tether(end)
    assert soon(lambda: tether.is_cut)
    tether.close()
    leash.close()


def test_all_are_cut_when_the_process_goes(leash: Leash) -> None:
    tether = Tether(leash.hold(str(uuid.uuid4())))
    assert soon(lambda: all(len(held) == 1 for held in leash._held.values()))
    assert not tether.is_cut
    leash.close()
    assert soon(lambda: tether.is_cut)
    tether.close()


def test_without_a_leash_a_task_goes_on() -> None:
    assert not Tether(None).is_cut
    nobody = Tether(LeashEnd("127.0.0.1", 1, str(uuid.uuid4())))
    assert not nobody.is_cut
    nobody.close()
