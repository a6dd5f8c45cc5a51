"""A flow of a file that ends with an error is started again, later and later, while the others run on."""

from __future__ import annotations

from typing import Any, cast

from sparkmirror.config.flows import SourceAndTarget
from sparkmirror.control.assembly import Assembled
from sparkmirror.control.runner import FlowWorker
from sparkmirror.errors import ConfigError, SparkMirrorError

PAIR = SourceAndTarget("A", "B")
FIRST, MOST = 40, 370
"""Seconds, with what chance adds."""


class Herder:
    """One that runs until it is told with what error it ends."""

    def __init__(self) -> None:
        self.error: SparkMirrorError | None = None
        self.is_ready = False
        self.is_started = False
        self._has_ended = False

    def start(self) -> None:
        self.is_started = True

    def wait(self, timeout: float) -> bool:
        return self._has_ended

    def end(self, error: SparkMirrorError | None) -> None:
        self.error, self._has_ended = error, True


class Flow:
    """A worker of a flow, the herders that were made for it, and why the next cannot be made."""

    def __init__(self) -> None:
        self.herders: list[Herder] = []
        self.trouble: Exception | None = None
        self.worker = FlowWorker(PAIR, self._make)
        self.worker.start()

    def _make(self) -> Assembled:
        if self.trouble is not None:
            raise self.trouble
        self.herders.append(Herder())
        return cast(Assembled, type("Made", (), {"herder": cast(Any, self.herders[-1])}))

    def fail(self, now: float) -> None:
        self.herders[-1].end(SparkMirrorError("the broker refuses us"))
        self.worker.tend(now)


def is_down(flow: Flow) -> bool:
    return flow.worker.error is not None


def next_start(flow: Flow, now: float) -> float:
    """How long after `now` it is started again, in half seconds; 1000 if it is not."""
    count = len(flow.herders)
    for step in range(2000):
        flow.worker.tend(now + step / 2)
        if len(flow.herders) > count:
            return step / 2
    return 1000.0


def test_a_flow_that_ended_with_an_error_is_started_again() -> None:
    flow = Flow()
    flow.fail(0.0)
    assert is_down(flow)
    assert 0 < next_start(flow, 0.0) <= FIRST
    assert not is_down(flow)
    assert flow.herders[-1].is_started


def test_it_is_tried_less_and_less_often_until_it_has_run() -> None:
    flow, now = Flow(), 0.0
    waits = []
    for _ in range(8):
        flow.fail(now)
        waits.append(next_start(flow, now))
        now += waits[-1]
    assert max(waits) > 100
    assert max(waits) <= MOST
    flow.herders[-1].is_ready = True
    flow.worker.tend(now)
    flow.fail(now)
    assert next_start(flow, now) <= FIRST


def test_what_its_file_names_may_be_gone_for_a_while() -> None:
    flow = Flow()
    flow.fail(0.0)
    flow.trouble = FileNotFoundError("truststore.jks")
    assert next_start(flow, 0.0) == 1000
    assert "truststore.jks" in str(flow.worker.error)
    flow.trouble = ConfigError("tasks.max=0", "Set it to 1 or more.")
    assert next_start(flow, 1000.0) == 1000
    assert "tasks.max" in str(flow.worker.error)
    flow.trouble = None
    assert next_start(flow, 2000.0) <= MOST
    assert not is_down(flow)


def test_one_that_was_told_to_end_stays_so() -> None:
    flow = Flow()
    flow.herders[-1].end(None)
    assert next_start(flow, 0.0) == 1000
    assert not is_down(flow)
