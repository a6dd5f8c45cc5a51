"""The driver's end of queries, without Spark: copy tasks are met and answered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from sparkmirror.dataplane.job_label import JobLabel
from sparkmirror.dataplane.links.address import Purpose
from sparkmirror.dataplane.links.connecting import connect
from sparkmirror.dataplane.links.driver_listener import DriverListener
from sparkmirror.dataplane.links.session_tls import new_secret
from sparkmirror.dataplane.query.columns import MOST_DESKS, MOST_ROWS, desk_of, first_number
from sparkmirror.dataplane.query.desk import Desk
from sparkmirror.dataplane.query.engine import QueryEngine
from sparkmirror.dataplane.query.frames import Call, Kind, said
from sparkmirror.dataplane.query.terms import QueryLimits, QueryTerms
from sparkmirror.errors import QueryRefused, SparkError

_MOST_INT64 = (1 << 63) - 1
LABEL = JobLabel("A->B", "msc", ("t",), (0,))


@pytest.fixture
def engine() -> Iterator[QueryEngine]:
    listener = DriverListener("127.0.0.1", "127.0.0.1", new_secret(tls=False))
    made = QueryEngine(cast(Any, None), listener, 2)
    yield made
    made.close()
    listener.close()


def met(engine: QueryEngine) -> tuple[Call, int]:
    """A copy task, and its number."""
    driver = engine.driver
    call = Call(connect(driver.address, Purpose.QUERIES, driver.secret))
    call.send(said(Kind.HELLO, address=["127.0.0.1", 1], label=LABEL.plain))
    message = call.receive()
    assert message.kind is Kind.HEARD
    return call, message.fields["desk"]


def test_the_number_of_a_copy_task_fits_into_a_record_s_however_many_jobs_there_were(
    engine: QueryEngine,
) -> None:
    for _ in range(MOST_DESKS + 10):
        engine.next_number()
    call, number = met(engine)
    assert desk_of(first_number(number, -1) + MOST_ROWS - 1) == number
    assert first_number(number, -1) + MOST_ROWS - 1 <= _MOST_INT64
    call.close()
    assert first_number(MOST_DESKS, -1) + MOST_ROWS - 1 == _MOST_INT64


def test_copy_tasks_that_are_there_have_different_numbers(engine: QueryEngine) -> None:
    found = [met(engine) for _ in range(5)]
    assert len({number for _, number in found}) == 5
    for call, _ in found:
        call.close()


@pytest.mark.parametrize("error", [SparkError("It is gone.", "Wait."), QueryRefused("No.", "Yes.")])
def test_spark_that_is_gone_is_not_a_query_that_is_refused(
    engine: QueryEngine, monkeypatch: pytest.MonkeyPatch, error: SparkError | QueryRefused
) -> None:
    def plan(terms: QueryTerms, memory: int) -> Callable[[], None]:
        raise error

    monkeypatch.setattr(engine._planner, "plan", plan)
    desk = Desk(engine.driver, "A->B", QueryLimits())
    try:
        with pytest.raises(type(error)) as found:
            desk.prepare(QueryTerms("SELECT value FROM records"))
    finally:
        desk.close()
    assert (found.value.message, found.value.remedy) == (error.message, error.remedy)


def test_functions_of_a_recorded_query_are_asked_for_before_anything_of_it_runs() -> None:
    """Who writes to an internal topic can name a query, and no code of his choice."""
    asked: list[str] = []

    def refuse(name: str) -> None:
        asked.append(name)
        raise QueryRefused(f"{name} is not for you.")

    listener = DriverListener("127.0.0.1", "127.0.0.1", new_secret(tls=False))
    engine = QueryEngine(cast(Any, None), listener, 2, may_call=refuse)
    terms = QueryTerms("SELECT f(value) AS value FROM records", ("pip:main",))
    with pytest.raises(QueryRefused, match="pip:main is not for you"):
        engine._planner.plan(terms, 1)
    assert asked == ["pip:main"]
    engine.close()
    listener.close()
