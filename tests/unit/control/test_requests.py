"""Questions from any thread are answered in the herder's."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from sparkmirror.control.requests import RequestQueue
from sparkmirror.errors import ConnectError, NotFound


class Loop:
    """A herder's thread that does nothing but answer."""

    def __init__(self) -> None:
        self.woken = threading.Event()
        self.queue = RequestQueue(self.woken.set)
        self.ending = False
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self.ending:
            self.woken.wait(min(0.05, self.queue.next_due()))
            self.woken.clear()
            self.queue.run_due()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    loop.thread.start()
    yield loop
    loop.ending = True
    loop.thread.join()


def test_it_runs_in_the_loops_thread_and_gives_the_answer(loop: Loop) -> None:
    assert loop.queue.ask(threading.get_ident, 5) == loop.thread.ident


def test_an_error_belongs_to_whoever_asked(loop: Loop) -> None:
    def fail() -> None:
        raise NotFound("Connector x not found")

    with pytest.raises(NotFound, match="Connector x not found"):
        loop.queue.ask(fail, 5)
    assert loop.queue.ask(lambda: 1, 5) == 1


def test_who_waits_too_long_hears_what_the_loop_is_doing() -> None:
    queue = RequestQueue(lambda: None)
    queue.stage = "reading its internal topics"
    ran: list[int] = []
    with pytest.raises(ConnectError, match="reading its internal topics"):
        queue.ask(lambda: ran.append(1), 0.01)
    queue.run_due()
    assert not ran, "nobody waits for it any more"


def test_later_ones_wait_for_their_time_and_keep_their_order() -> None:
    queue = RequestQueue(lambda: None)
    done: list[str] = []

    def note(text: str) -> Callable[[], None]:
        return lambda: done.append(text)

    queue.later(note("much later"), 60)
    queue.later(note("first"), 0)
    queue.later(note("second"), 0)
    queue.run_due()
    assert done == ["first", "second"]
    assert 50 < queue.next_due() <= 60


def test_after_the_end_nobody_waits_in_vain() -> None:
    queue = RequestQueue(lambda: None)
    waiting = queue.later(lambda: 1, 60)
    queue.close()
    with pytest.raises(ConnectError, match="shutting down"):
        waiting.result(1)
    with pytest.raises(ConnectError, match="shutting down"):
        queue.ask(lambda: 1, 1)
