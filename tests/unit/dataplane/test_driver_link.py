"""Tasks are told to end by a connection that is cut."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable

import pytest

from sparkmirror.dataplane.driver_link import DriverLink, DriverLinks, LinkAddress


def soon(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.fixture
def links() -> DriverLinks:
    return DriverLinks("127.0.0.1", is_local=True)


def test_a_task_sees_that_its_job_is_cut_and_no_other(links: DriverLinks) -> None:
    jobs = [str(uuid.uuid4()), str(uuid.uuid4())]
    found = [DriverLink(links.expect(job)) for job in jobs]
    assert soon(lambda: all(len(held) == 1 for held in links._held.values()))
    assert not any(link.is_cut for link in found)
    links.cut(jobs[0])
    assert soon(lambda: found[0].is_cut)
    assert not found[1].is_cut
    for link in found:
        link.close()
    assert found[0].is_cut, "it stays cut"
    links.close()


def test_a_task_that_comes_too_late_is_cut_at_once(links: DriverLinks) -> None:
    job = str(uuid.uuid4())
    end = links.expect(job)
    links.cut(job)
    link = DriverLink(end)
    assert soon(lambda: link.is_cut)
    link.close()
    links.close()


def test_all_are_cut_when_the_process_goes(links: DriverLinks) -> None:
    link = DriverLink(links.expect(str(uuid.uuid4())))
    assert soon(lambda: all(len(held) == 1 for held in links._held.values()))
    assert not link.is_cut
    links.close()
    assert soon(lambda: link.is_cut)
    link.close()


def test_a_task_without_a_link_goes_on() -> None:
    assert not DriverLink(None).is_cut
    nobody = DriverLink(LinkAddress("127.0.0.1", 1, str(uuid.uuid4())))
    assert not nobody.is_cut
    nobody.close()
