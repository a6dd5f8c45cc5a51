"""A desk, the driver and the steps of jobs over real sockets: what comes of slices when all goes well, and when it does not."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkmirror.dataplane.links.address import GREETING_BYTES, Purpose, greeting
from sparkmirror.dataplane.links.connecting import connect
from sparkmirror.dataplane.query import parts
from sparkmirror.dataplane.query.frames import Call, Kind, frame, said
from sparkmirror.errors import QueryRefused, SparkError
from tests.unit.dataplane.query_hub import (
    TERMS,
    Bench,
    Partition,
    bench,
    carefully,
    record,
    turned,
    upper,
)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with bench(monkeypatch) as found:
        found.desk.prepare(TERMS)
        yield found


@pytest.fixture(params=[False, True], ids=["plain", "TLS"])
def wired(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """The same, with and without TLS."""
    with bench(monkeypatch, tls=request.param) as found:
        found.desk.prepare(TERMS)
        yield found


def is_bad(value: bytes) -> bool:
    return value.startswith(b"bad")


def partition(*slices: list[bytes]) -> Partition:
    offsets = itertools.count()
    return Partition([[record(next(offsets), value) for value in values] for values in slices])


def outcome(found: Partition) -> list[tuple[dict[int, bytes], dict[int, str]]]:
    """Of each slice what the query gave, and what it raised on."""
    return [
        (
            dict(zip(piece.given.rows, piece.given.columns.get("value", []), strict=True)),
            piece.bad,
        )
        for piece in found.answers
    ]


# -- all goes well ----------------------------------------------------------------------------------


def test_slices_come_back_in_one_job(wired: Bench) -> None:
    made = wired
    one, other = partition([b"a", b"drop", b"c"], [b"d"]), partition([b"e"])
    made.desk.offer(made.prepared, one)
    made.desk.offer(made.prepared, other)
    waiting = {"query": 3, "alone": False, "plenty": True, "left": False}
    assert made.hub.waiting(made.desk) == waiting
    job = made.job()
    batches = job.take()
    assert [b.column("value").to_pylist() for b in batches] == [
        [b"a", b"drop", b"c"],
        [b"e"],
        [b"d"],
    ]
    assert job.give(*map(upper, batches)) == {"records": 4, "bad": 0}
    made.tell(Kind.DONE, job)
    turned(made.desk, lambda: len(one.answers) == 2 and other.answers)
    assert outcome(one) == [({0: b"A", 2: b"C"}, {}), ({0: b"D"}, {})]
    assert outcome(other) == [({0: b"E"}, {})]


def test_results_do_not_count_before_the_driver_says_so(made: Bench) -> None:
    rows = partition([b"a"])
    made.desk.offer(made.prepared, rows)
    job = made.job()
    job.give(*map(upper, job.take()))
    made.settle()
    assert rows.answers == []
    made.tell(Kind.DONE, job)
    turned(made.desk, lambda: rows.answers)


def test_a_step_takes_no_more_than_its_limit(made: Bench) -> None:
    rows = partition([b"x" * 1000], [b"y" * 1000])
    made.desk.offer(made.prepared, rows)
    assert not made.hub.waiting(made.desk)["left"]
    job = made.job(limit=500)
    first = job.take()
    assert len(first) == 1
    made.desk.offer(made.prepared, rows)
    assert not made.hub.waiting(made.desk)["left"], "that is known when the job is done"
    job.give(*map(upper, first))
    made.tell(Kind.DONE, job)
    turned(made.desk, lambda: rows.answers)
    waiting = made.hub.waiting(made.desk)
    assert (waiting["plenty"], waiting["left"]) == (True, True)  # the next job need not wait


def test_a_job_that_took_all_leaves_nothing(made: Bench) -> None:
    rows = partition([b"x"])
    made.desk.offer(made.prepared, rows)
    made.hub.waiting(made.desk)
    job = made.job()
    job.give(*map(upper, job.take()))
    made.tell(Kind.DONE, job)
    turned(made.desk, lambda: rows.answers)
    made.desk.offer(made.prepared, partition([b"y"]))
    assert not made.hub.waiting(made.desk)["left"]


def test_somebody_may_ask_and_wait(made: Bench) -> None:
    import threading

    def drive() -> None:
        job = made.job()
        assert made.hub.desk is not None
        call = Call.to(made.hub.desk, made.hub.driver.secret)
        request = said(
            Kind.TAKE, job=job.number, query=3, alone=False, careful=False, task=0, attempt=0
        )
        call.send(request)
        assert call.receive().kind is Kind.SLICE
        made.tell(Kind.DONE, job)
        call.close()

    threading.Thread(target=drive, daemon=True).start()
    found = made.desk.ask(made.prepared, [record(5, b"drop"), record(6, b"drop")])
    assert found.given.rows == []
    assert found.bad == {}


def test_the_same_query_is_prepared_once_and_a_refused_one_is_told(made: Bench) -> None:
    assert made.desk.prepare(TERMS) is made.desk.prepare(TERMS)
    made.hub.refusal = {"message": "no such column", "remedy": "look again"}
    with pytest.raises(QueryRefused, match="no such column") as refused:
        made.desk.prepare(TERMS.__class__("SELECT other FROM records"))
    assert refused.value.remedy == "look again"


# -- jobs that are lost -----------------------------------------------------------------------------


def test_a_job_that_fails_is_as_if_it_had_not_been(made: Bench) -> None:
    rows = partition([b"a"], [b"b"])
    made.desk.offer(made.prepared, rows)
    lost = made.job()
    lost.give(*map(upper, lost.take()))  # all of it had come back
    made.fail(lost, "lost")
    made.hub.waiting(made.desk)
    assert rows.answers == []
    made.run_until(lambda: len(rows.answers) == 2, is_bad)
    assert outcome(rows) == [({0: b"A"}, {}), ({0: b"B"}, {})]


def test_late_results_and_words_of_an_old_job_are_dropped(made: Bench) -> None:
    rows = partition([b"a"])
    made.desk.offer(made.prepared, rows)
    old, new = made.job(), made.job()
    late = [carefully(b, lambda _: True) for b in old.take()]
    (batch,) = new.take()  # the driver has given the old one up
    assert batch.column("value").to_pylist() == [b"a"]
    old.give(*late)
    made.tell(Kind.DONE, old)
    made.settle()
    assert old.take() == []
    assert rows.answers == []
    new.give(upper(batch))
    made.tell(Kind.DONE, new)
    turned(made.desk, lambda: rows.answers)
    assert outcome(rows) == [({0: b"A"}, {})]


def test_the_word_on_a_job_is_read_before_the_next_begins(made: Bench) -> None:
    rows = partition([b"a"])
    made.desk.offer(made.prepared, rows)
    first, second = made.job(), made.job()
    first.give(*map(upper, first.take()))
    rows.slices.append([record(9, b"z")])
    made.desk.offer(made.prepared, rows)
    made.tell(Kind.DONE, first)  # not read yet when the next one asks
    (batch,) = second.take()
    assert batch.column("value").to_pylist() == [b"z"]
    assert outcome(rows) == [({0: b"A"}, {})]


@pytest.mark.parametrize("kind", [Kind.DONE, Kind.FAILED])
def test_a_job_that_did_not_ask_leaves_no_desk_waiting(made: Bench, kind: Kind) -> None:
    """It had its fill from others, or failed before: the driver must hear again that there are records."""
    made.desk.offer(made.prepared, partition([b"a"]))
    assert made.hub.waiting(made.desk)["plenty"]
    job = made.job()
    if kind is Kind.DONE:
        made.tell(kind, job)
    else:
        made.fail(job, "query")
    assert made.hub.waiting(made.desk)["plenty"]


def test_a_task_that_is_run_again_gets_what_it_had(made: Bench) -> None:
    rows = partition([b"a"], [b"b"])
    made.desk.offer(made.prepared, rows)
    job = made.job(limit=1)
    (lost,) = job.take()
    other = made.job(limit=1, task=1)
    other.number = job.number
    (kept,) = other.take()
    job.attempt = 1
    (again,) = job.take()
    assert again.column("value").to_pylist() == lost.column("value").to_pylist() == [b"a"]
    job.give(carefully(lost, lambda _: True))  # of the first attempt, which nobody waits for
    job.give(upper(again))
    other.give(upper(kept))
    job.attempt = 0
    assert job.take() == []
    made.tell(Kind.DONE, job)
    turned(made.desk, lambda: len(rows.answers) == 2)
    assert outcome(rows) == [({0: b"B"}, {}), ({0: b"A"}, {})]


# -- records that the query raises on ---------------------------------------------------------------


@settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    slices=st.lists(
        st.lists(st.sampled_from([b"bad", b"drop", b"a", b"b"]), min_size=1, max_size=12),
        min_size=1,
        max_size=4,
    ),
    has_careful=st.booleans(),
    # A third crash may be the fault of the record that is just tried.
    misfortunes=st.lists(st.sampled_from(["", "", "lost", "crash"]), max_size=20).filter(
        lambda found: found.count("crash") < 3
    ),
)
def test_each_bad_record_is_found_and_all_others_pass(
    slices: list[list[bytes]], has_careful: bool, misfortunes: list[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch, bench(patch) as made:
        made.desk.prepare(TERMS)
        rows = partition(*slices)
        made.desk.offer(made.prepared, rows)
        made.run_until(
            lambda: len(rows.answers) == len(slices),
            is_bad,
            has_careful=has_careful,
            misfortunes=iter(misfortunes),
        )
        found = {
            piece.rows[0].offset: part
            for piece, part in zip(rows.answers, outcome(rows), strict=True)
        }
        offset = 0
        for values in slices:
            kept, bad = found[offset]
            offset += len(values)
            assert list(kept.items()) == [
                (at, v.upper()) for at, v in enumerate(values) if v in (b"a", b"b")
            ]
            assert set(bad) == {at for at, v in enumerate(values) if v == b"bad"}
        assert rows.failures == []


def test_a_careful_job_finds_all_bad_ones_at_once(made: Bench) -> None:
    rows = partition([b"bad1", b"a", b"bad2", b"drop", b"bad3", b"b"])
    made.desk.offer(made.prepared, rows)
    made.run_until(lambda: bool(rows.answers), is_bad, has_careful=True)
    assert made.log == [(False, 6), (False, 6), (True, 1)]
    ((kept, bad),) = outcome(rows)
    assert kept == {1: b"A", 5: b"B"}
    assert bad == {
        0: "bad: bad1",
        2: "The query raises on it as well; of offset 0 it says: bad: bad1",
        4: "The query raises on it as well; of offset 0 it says: bad: bad1",
    }


def test_what_a_function_said_is_known_without_another_job(made: Bench) -> None:
    rows = partition([b"a", b"bad", b"b", b"bad"])
    made.desk.offer(made.prepared, rows)
    job = made.job()
    assert job.give(*(carefully(b, is_bad, "f raised") for b in job.take()))["bad"] == 2
    made.tell(Kind.DONE, job)
    turned(made.desk, lambda: rows.answers)
    assert outcome(rows) == [({0: b"A", 2: b"B"}, {1: "f raised", 3: "f raised"})]


def test_jobs_that_are_lost_all_the_time_fail_their_slices(made: Bench) -> None:
    rows = partition([b"a"])
    made.desk.offer(made.prepared, rows)
    for _ in range(10):
        assert rows.failures == []
        job = made.job()
        job.take()
        made.fail(job, "lost", "no module on the executors")
        made.settle()
    assert [error.message for error in rows.failures] == ["no module on the executors"]
    assert made.job().take() == []


def test_records_that_pass_after_all_are_not_left_out(made: Bench) -> None:
    """A careful plan that sees more bad records than there are must not cost any."""
    rows = partition([b"a", b"b", b"c"])
    made.desk.offer(made.prepared, rows)
    job = made.job()
    job.give(*(carefully(b, lambda _: True) for b in job.take()))
    made.tell(Kind.DONE, job)
    made.run_until(lambda: bool(rows.answers), is_bad)
    assert outcome(rows) == [({0: b"A", 1: b"B", 2: b"C"}, {})]


def test_others_go_on_while_a_bad_record_is_looked_for(made: Bench) -> None:
    troubled = partition([b"a"] * 15 + [b"bad"])
    made.desk.offer(made.prepared, troubled)
    job = made.job()
    job.take()
    made.fail(job, "query")
    made.settle()
    healthy = partition(*[[b"x"]] * 3)
    made.desk.offer(made.prepared, healthy)
    made.run_until(lambda: len(healthy.answers) == 3, is_bad)
    assert troubled.answers == []
    made.run_until(lambda: bool(troubled.answers), is_bad)
    assert troubled.answers[0].bad == {15: "bad: bad"}


def test_a_worker_that_ends_once_is_nobodys_fault(made: Bench) -> None:
    rows = partition([b"a"])
    made.desk.offer(made.prepared, rows)
    made.run_until(lambda: bool(rows.answers), is_bad, misfortunes=iter(["crash", "crash"]))
    assert outcome(rows) == [({0: b"A"}, {})]
    assert not any(alone for alone, _ in made.log)


def test_a_record_that_ends_the_worker_each_time_is_bad(made: Bench) -> None:
    rows = partition([b"a", b"b", b"exit"])
    made.desk.offer(made.prepared, rows)
    alone = 0
    while not rows.answers:
        waiting = made.hub.waiting(made.desk)
        job = made.job(alone=waiting["alone"])
        batches = job.take()
        values = [v for b in batches for v in b.column("value").to_pylist()]
        alone += values == [b"exit"]
        if b"exit" in values:
            made.fail(job, "crash", "a worker ended")
        else:
            job.give(*map(upper, batches))
            made.tell(Kind.DONE, job)
        made.settle()
    assert alone == 3
    assert outcome(rows) == [({0: b"A", 1: b"B"}, {2: "a worker ended"})]


def test_a_slice_that_takes_too_long_fails_and_others_go_on(made: Bench) -> None:
    stuck, other = partition([b"hang", b"a"]), partition([b"b"])
    made.desk.offer(made.prepared, stuck)
    made.desk.offer(made.prepared, other)
    while not (stuck.failures and other.answers):
        waiting = made.hub.waiting(made.desk)
        job = made.job(alone=waiting["alone"])
        batches = job.take()
        if any(b"hang" in b.column("value").to_pylist() for b in batches):
            made.fail(job, "slow", "it takes too long")
        else:
            job.give(*map(upper, batches))
            made.tell(Kind.DONE, job)
        made.settle()
    assert [str(error) for error in stuck.failures] == ["it takes too long mend it"]
    assert stuck.answers == []
    assert outcome(other) == [({0: b"B"}, {})]


def test_who_does_not_wait_any_more_hears_nothing(made: Bench) -> None:
    rows = partition([b"a"])
    made.desk.offer(made.prepared, rows)
    job = made.job()
    job.give(*map(upper, job.take()))
    made.desk.forget(rows)
    made.tell(Kind.DONE, job)
    made.settle()
    assert rows.answers == []


# -- connections that break -------------------------------------------------------------------------


def test_a_driver_that_is_gone_is_told_to_all_who_ask(made: Bench) -> None:
    rows = partition([b"a"])
    made.desk.offer(made.prepared, rows)
    made.job().take()
    made.hub.close()
    turned(made.desk, lambda: not made.desk.is_open)
    with pytest.raises(SparkError, match="driver"):
        made.desk.ask(made.prepared, [record(0, b"a")])
    with pytest.raises(SparkError, match="driver"):
        made.desk.prepare(TERMS.__class__("SELECT 1 AS value FROM records"))
    assert rows.answers == []


def test_a_desk_that_was_never_needed_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(monkeypatch) as made:
        assert made.desk.is_open
        made.hub.close()
        assert made.desk.is_open
        with pytest.raises(SparkError):
            made.desk.prepare(TERMS)


def test_a_desk_that_closes_in_mid_job_ends_the_step(made: Bench) -> None:
    made.desk.offer(made.prepared, partition([b"a"]))
    job = made.job()
    (batch,) = job.take()
    made.desk.close()
    made.desk = made.desk.__class__(made.hub.driver, "A->B", made.desk._limits)
    job.desk = made.desk
    with pytest.raises(SparkError):
        job.give(upper(batch))


@pytest.mark.parametrize(
    "words",
    [
        greeting("0" * 32, Purpose.SLICES),
        said(Kind.TAKE, job=200, query=3, alone=False, careful=False, task=0, attempt=0),
        b"GET / HTTP/1.1\r\nHost: localhost:8083\r\n\r\n",
        b"\x7f" * GREETING_BYTES,
    ],
)
def test_a_connection_without_the_greeting_gets_nothing(wired: Bench, words: bytes) -> None:
    made = wired
    rows = partition([b"a"])
    made.desk.offer(made.prepared, rows)
    assert made.hub.desk is not None
    with socket.create_connection(made.hub.desk) as stranger:
        stranger.settimeout(0.01)
        stranger.sendall(words)

        def is_closed() -> bool:
            try:
                return stranger.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        turned(made.desk, is_closed)
    assert rows.slices  # nothing was given out


def test_a_connection_for_another_purpose_gets_nothing(made: Bench) -> None:
    assert made.hub.desk is not None
    call = Call(connect(made.hub.desk, Purpose.QUERIES, made.hub.driver.secret))
    call.send(said(Kind.TAKE, job=200, query=3, alone=False, careful=False, task=0, attempt=0))
    call.patience(0.01)
    turned(made.desk, lambda: is_closed(call))
    call.close()


@pytest.mark.parametrize("words", [b"", b"some"])
def test_a_connection_that_is_reset_at_once_disturbs_nobody(wired: Bench, words: bytes) -> None:
    """As port scanners do it, and tasks that are killed while they connect."""
    assert wired.hub.desk is not None
    stranger = socket.create_connection(wired.hub.desk)
    stranger.sendall(words)
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stranger.close()
    rows = partition([b"a"])
    wired.desk.offer(wired.prepared, rows)
    job = wired.job()
    job.give(*map(upper, job.take()))
    wired.tell(Kind.DONE, job)
    turned(wired.desk, lambda: rows.answers)


@pytest.mark.parametrize("count", [1, 20, 31])
def test_a_few_connections_that_have_not_greeted_yet_are_kept(made: Bench, count: int) -> None:
    assert made.hub.desk is not None
    waiting = [socket.create_connection(made.hub.desk) for _ in range(count)]
    turned(made.desk, lambda: len(made.desk._lines) == count)
    for each in waiting:
        each.close()


def test_connections_that_never_greet_do_not_keep_others_out(made: Bench) -> None:
    made.desk.offer(made.prepared, partition([b"a"]))
    assert made.hub.desk is not None
    silent = [socket.create_connection(made.hub.desk) for _ in range(100)]
    (batch,) = made.job().take()
    assert batch.num_rows == 1
    assert len(made.desk._lines) <= 33
    for each in silent:
        each.close()


def is_closed(call: Call) -> bool:
    try:
        call.receive()
    except SparkError as error:
        return "timed out" not in str(error)
    return False


def test_results_without_columns_are_not_taken(made: Bench) -> None:
    assert made.hub.desk is not None
    call = Call.to(made.hub.desk, made.hub.driver.secret)
    call.send(frame(Kind.RESULT, b"\x00"))
    call.patience(0.01)
    turned(made.desk, lambda: is_closed(call))
    call.close()


def test_a_slice_of_more_rows_than_can_be_numbered_goes_out_in_parts(
    made: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "MOST_ROWS", 2)
    one = partition([b"a", b"drop", b"c", b"d", b"e"])
    made.desk.offer(made.prepared, one)
    job = made.job()
    batches = job.take()
    assert [batch.num_rows for batch in batches] == [2, 2, 1]
    job.give(*map(upper, batches))
    made.tell(Kind.DONE, job)
    turned(made.desk, lambda: one.answers)
    assert outcome(one) == [({0: b"A", 2: b"C", 3: b"D", 4: b"E"}, {})]
