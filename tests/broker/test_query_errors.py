"""Queries and functions that go wrong: each gives its sentence, and the other flows of the worker go on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from cluster_pair import ClusterPair
from connect_worker import ConnectWorker, connector_path, worker_properties
from kafka_tools import (
    NewRecord,
    consume,
    create_topic,
    end_offsets,
    produce,
    set_topic_configs,
    topics,
    wait_for,
)
from pyspark.sql import functions
from worker_flow import Flow

Unique = Callable[[str], str]
PATIENCE_S = 180.0
HERE = Path(__file__).parent
COUNT = 40
AT = 25
"""The offset of the bad record in partition 0."""
NUMBER = "CAST(CAST(CAST(value AS STRING) AS INT) + 1 AS STRING)"
pytestmark = pytest.mark.slow


def select(value: str) -> str:
    return f"SELECT {value} AS value FROM records"  # noqa: S608 - it is the test's own


class Other(Flow):
    """A flow without fault on the same worker, with a query of its own."""

    def goes_on(self) -> None:
        self.produce(10)
        wait_for(f"{self.name} goes on", lambda: self.copied() >= self.count, PATIENCE_S)


@pytest.fixture(scope="module")
def worker(
    cluster_pair: ClusterPair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ConnectWorker]:
    keys = worker_properties(cluster_pair.target.bootstrap, f"errors-{time.time_ns():x}")
    keys["transform.functions.allowed"] = "no_such_module, query_functions"
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"PYTHONPATH": path}
    with ConnectWorker(tmp_path_factory.mktemp("errors"), keys, environment=environment) as running:
        running.wait_ready()
        yield running


@pytest.fixture(scope="module")
def other(cluster_pair: ClusterPair, worker: ConnectWorker) -> Iterator[Other]:
    flow = Other(cluster_pair.source, cluster_pair.target, f"other-{time.time_ns():x}")
    flow.produce(10)
    worker.put(flow.name, flow.config(transform_sql="SELECT upper(value) AS value FROM records"))
    wait_for("the other flow copies", lambda: flow.copied() >= flow.count, PATIENCE_S)
    yield flow
    flow.goes_on()
    assert set(worker.states(flow.name)[1]) == {"RUNNING"}  # type: ignore[index]


@pytest.fixture
def flow(cluster_pair: ClusterPair, unique: Unique, worker: ConnectWorker) -> Iterator[Flow]:
    made = Flow(cluster_pair.source, cluster_pair.target, unique("t"))
    yield made
    worker.request("DELETE", connector_path(made.name))


def fill(flow: Flow, bad: bytes = b"bad") -> None:
    """Numbers in both partitions, and one bad record in the first."""
    rows = [
        NewRecord(b"%d" % n, b"%d" % (n // 2), n % 2, 1_700_000_000_000 + n)
        for n in range(2 * COUNT)
    ]
    rows[2 * AT] = NewRecord(b"key", bad, 0, 1_700_000_000_777, (("h", b"1"), ("h", None)))
    produce(flow.source.bootstrap, flow.topic, rows)


def written(flow: Flow) -> dict[int, int]:
    if flow.remote not in topics(flow.target.bootstrap):
        return {}
    return end_offsets(flow.target.bootstrap, flow.remote)


def wait_written(flow: Flow, counts: dict[int, int]) -> None:
    wait_for(f"{flow.remote} holds {counts}", lambda: written(flow) == counts, PATIENCE_S)


def values(flow: Flow) -> dict[int, list[bytes | None]]:
    found: dict[int, list[bytes | None]] = {0: [], 1: []}
    for row in consume(flow.target.bootstrap, flow.remote):
        found[row.partition].append(row.value)
    return found


def sentence(worker: ConnectWorker, flow: Flow) -> str:
    return worker.wait_failed(flow.name, PATIENCE_S).strip()


def refused(worker: ConnectWorker, flow: Flow, **keys: str) -> str:
    """What is said of a config that cannot be run: when it is given, or by its tasks."""
    answer = worker.request("PUT", f"{connector_path(flow.name)}/config", flow.config(**keys))
    if answer.status == 400:
        return str(answer.document["message"])
    assert answer.status in (200, 201)
    return sentence(worker, flow)


# -- queries that cannot be run -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"transform_sql": "SELEC value FROM records"}, ["PARSE_SYNTAX_ERROR", "SELEC"]),
        ({"transform_sql": "SELECT valu FROM records"}, ["UNRESOLVED_COLUMN", "`valu`"]),
        ({"transform_sql": "SELECT 1 AS value FROM records"}, ["INT", "BINARY or STRING"]),
        ({"transform_sql": "SELECT nothing(value) AS value FROM records"}, ["UNRESOLVED_ROUTINE"]),
        (
            {
                "transform_sql": "SELECT f(value) AS value FROM records",
                "transform_functions": "no_such_module:f",
            },
            ["transform.functions", "no_such_module", "cannot be imported"],
        ),
        (
            {
                "transform_sql": "SELECT f(value) AS value FROM records",
                "transform_functions": "query_functions:f",
            },
            ["query_functions has no f"],
        ),
    ],
    ids=["syntax", "column", "type", "function", "module", "name"],
)
def test_a_query_that_cannot_be_run_is_refused(
    worker: ConnectWorker, other: Other, flow: Flow, keys: dict[str, str], words: list[str]
) -> None:
    fill(flow)
    said = refused(worker, flow, **keys)
    assert all(word in said for word in words), said
    assert "Traceback" not in said
    assert "\tat " not in said
    other.goes_on()


# -- records that a query raises on -------------------------------------------------------------------


FUNCTIONS = ["picky", "picky_udf", "picky_by_arrow"]
if hasattr(functions, "arrow_udf"):  # PySpark 4.1
    FUNCTIONS += ["picky_arrays", "picky_iterator"]


@pytest.mark.parametrize("function", ["", "picky"])
def test_without_tolerance_all_before_the_bad_record_is_written_and_the_partition_stands_still(
    worker: ConnectWorker, other: Other, flow: Flow, function: str
) -> None:
    fill(flow)
    keys = {"transform_sql": select(NUMBER)}
    words = ["[CAST_INVALID_INPUT]", "'bad'"]
    if function:
        keys = {
            "transform_sql": select(f"{function}(value)"),
            "transform_functions": f"query_functions:{function}",
        }
        words = [f"Function {function} raised ValueError: it is not to my taste"]
    worker.put(flow.name, flow.config(**keys))
    said = sentence(worker, flow)
    assert f"{flow.topic}-0: the query fails at offset {AT}: {words[0]}" in said, said
    assert all(word in said for word in words), said
    assert len(said.splitlines()) == 1
    assert "errors.tolerance=all" in said
    assert "and here is why" not in said
    wait_written(flow, {0: AT, 1: COUNT})
    other.goes_on()
    # Corrected, it goes on from there, with nothing lost or repeated.
    worker.put(flow.name, flow.config(transform_sql="SELECT upper(value) AS value FROM records"))
    wait_written(flow, {0: COUNT, 1: COUNT})
    worker.wait_running(flow.name, 2, PATIENCE_S)
    assert values(flow)[0][AT:] == [b"BAD", *(b"%d" % n for n in range(AT + 1, COUNT))]


@pytest.mark.parametrize("function", ["", *FUNCTIONS])
def test_with_tolerance_bad_records_become_dead_letters(
    worker: ConnectWorker, other: Other, flow: Flow, unique: Unique, function: str
) -> None:
    fill(flow)
    letters = unique("letters")
    keys = {
        "transform_sql": select(f"{function}(value)"),
        "transform_functions": f"query_functions:{function}",
        "errors_tolerance": "all",
        "errors_deadletterqueue_topic_name": letters,
        "errors_deadletterqueue_context_headers_enable": "true",
        "errors_log_enable": "true",
    }
    if not function:
        keys["transform_sql"] = select(NUMBER)
        del keys["transform_functions"]
    worker.put(flow.name, flow.config(**keys))
    wait_written(flow, {0: COUNT - 1, 1: COUNT})
    left = [n for n in range(COUNT) if n != AT]
    assert values(flow)[0] == [b"%d" % (n if function else n + 1) for n in left]
    wait_for("a dead letter", lambda: sum(end_offsets(flow.target.bootstrap, letters).values()))
    (letter,) = consume(flow.target.bootstrap, letters)
    assert (letter.key, letter.value, letter.timestamp) == (b"key", b"bad", 1_700_000_000_777)
    assert letter.headers[:2] == (("h", b"1"), ("h", None))
    context = {k.removeprefix("__connect.errors."): v for k, v in letter.headers[2:]}
    assert list(context) == [
        *("topic", "partition", "offset", "connector.name", "task.id", "stage", "class.name"),
        *("exception.class.name", "exception.message", "exception.stacktrace"),
    ]
    message = (context["exception.message"] or b"").decode()
    assert (f"Function {function} raised" if function else "[CAST_INVALID_INPUT]") in message
    assert context["topic"] == flow.topic.encode()
    assert (context["partition"], context["offset"]) == (b"0", b"%d" % AT)
    assert (context["connector.name"], context["stage"]) == (flow.name.encode(), b"TRANSFORMATION")
    assert context["task.id"] in (b"0", b"1")
    assert topics(flow.target.bootstrap)[letters] == 1
    worker.wait_until_says(f"{flow.topic}-0: the record at offset {AT} is left out: ")
    worker.wait_until_says(f"1 record(s) of {flow.topic}-0 left out so far")
    assert "value b'bad'" not in worker.output
    worker.wait_running(flow.name, 2, PATIENCE_S)


def test_many_bad_records_are_found_in_a_moment(
    worker: ConnectWorker, other: Other, flow: Flow
) -> None:
    """One in a hundred, and neither a topic for them nor a log: their number is told all the same."""
    rows = [NewRecord(None, b"bad%d" % n if n % 100 == 7 else b"%d" % n, 0) for n in range(4000)]
    produce(flow.source.bootstrap, flow.topic, rows)
    worker.put(
        flow.name,
        flow.config(transform_sql=select(NUMBER), errors_tolerance="all"),
    )
    wait_written(flow, {0: 3960, 1: 0})
    assert values(flow)[0] == [b"%d" % (n + 1) for n in range(4000) if n % 100 != 7]
    worker.wait_until_says(f"of {flow.topic}-0 left out so far, the first at offset 7: [CAST")


def test_a_partition_that_there_is_not_makes_a_bad_record(
    worker: ConnectWorker, other: Other, flow: Flow, unique: Unique
) -> None:
    """Neither does anybody wait for that partition, nor is a topic made wide enough for it."""
    fill(flow)
    letters, routed = unique("letters"), f"{flow.topic}.routed"
    sql = (
        f"SELECT value, IF(partition = 1, '{routed}', topic) AS topic, "  # noqa: S608 - the test's own
        f"IF(offset = {AT}, 7, partition) AS partition FROM records"
    )
    keys = {
        "errors_tolerance": "all",
        "errors_deadletterqueue_topic_name": letters,
        "errors_deadletterqueue_context_headers_enable": "true",
    }
    worker.put(flow.name, flow.config(transform_sql=sql, **keys))
    wait_written(flow, {0: COUNT - 1, 1: 0})
    remote = f"{flow.remote}.routed"
    wait_for(
        f"{remote} is filled",
        lambda: (
            remote in topics(flow.target.bootstrap)
            and end_offsets(flow.target.bootstrap, remote) == {0: 0, 1: COUNT - 1}
        ),
        PATIENCE_S,
    )
    wait_for(
        "both dead letters",
        lambda: (
            letters in topics(flow.target.bootstrap)
            and sum(end_offsets(flow.target.bootstrap, letters).values()) == 2
        ),
    )
    for letter in consume(flow.target.bootstrap, letters):
        message = dict(letter.headers)["__connect.errors.exception.message"] or b""
        assert f"gives 7 as partition; {flow.topic} has 2 (0 to 1)" in message.decode()
    worker.wait_running(flow.name, 2, PATIENCE_S)


def test_a_dead_letter_that_its_topic_does_not_take_fails_the_task(
    worker: ConnectWorker, other: Other, flow: Flow, unique: Unique
) -> None:
    fill(flow, b"bad" * 4000)
    letters = unique("letters")
    create_topic(flow.target.bootstrap, letters, configs={"max.message.bytes": "5000"})
    worker.put(
        flow.name,
        flow.config(
            transform_sql=select(NUMBER),
            errors_tolerance="all",
            errors_deadletterqueue_topic_name=letters,
            transforms="h",
            transforms_h_type="org.apache.kafka.connect.transforms.InsertHeader",
            transforms_h_header="via",
            **{"transforms.h.value.literal": "x"},
        ),
    )
    said = sentence(worker, flow)
    assert f"{flow.topic}-0: the record at offset {AT} makes a dead letter of 12," in said, said
    assert f"Raise max.message.bytes of {letters}" in said
    wait_for("the other partition", lambda: written(flow).get(1) == COUNT, PATIENCE_S)
    assert written(flow)[0] <= AT  # nothing behind it
    other.goes_on()
    set_topic_configs(flow.target.bootstrap, letters, {"max.message.bytes": "50000"})
    found = wait_for("the letter", lambda: consume(flow.target.bootstrap, letters), PATIENCE_S)
    wait_written(flow, {0: COUNT - 1, 1: COUNT})
    worker.wait_running(flow.name, 2, PATIENCE_S)
    left = [n for n in range(COUNT) if n != AT]
    assert values(flow)[0] == [b"%d" % (n + 1) for n in left]
    (letter,) = found
    assert (letter.key, letter.value) == (b"key", b"bad" * 4000)
    assert letter.headers == (("h", b"1"), ("h", None))  # as it was before the transforms


# -- functions that misbehave -------------------------------------------------------------------------


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def heal(worker: ConnectWorker, flow: Flow) -> None:
    worker.put(flow.name, flow.config(transform_sql="SELECT value FROM records"))
    wait_written(flow, {0: COUNT, 1: COUNT})
    worker.wait_running(flow.name, 2, PATIENCE_S)


def misbehaving(flow: Flow, function: str, **keys: str) -> dict[str, Any]:
    return flow.config(
        transform_sql=select(f"{function}(value)"),
        transform_functions=f"query_functions:{function}",
        **keys,
    )


def test_a_function_that_hangs(
    worker: ConnectWorker, other: Other, flow: Flow, tmp_path: Path
) -> None:
    seen = tmp_path / "pids"
    fill(flow, b"bad:" + str(seen).encode())
    worker.put(flow.name, misbehaving(flow, "stuck", transform_timeout_ms="3000"))
    said = sentence(worker, flow)
    assert f"{flow.topic}-0: the query fails at offset" in said, said
    assert "within 3 s" in said
    assert "transform.timeout.ms" in said
    wait_for("the other partition", lambda: written(flow).get(1) == COUNT, PATIENCE_S)
    other.goes_on()
    first = seen.read_text().split()
    wait_for("it is tried again", lambda: len(seen.read_text().split()) > len(first), PATIENCE_S)
    heal(worker, flow)
    pids = [int(pid) for pid in seen.read_text().split()]
    wait_for("none is left", lambda: all(is_gone(pid) for pid in pids), PATIENCE_S)


def test_a_pattern_that_goes_on_when_it_is_given_up(
    worker: ConnectWorker, other: Other, flow: Flow
) -> None:
    """Java does not end a pattern that backtracks: others go on beside it, and its partition is not tried again at once."""
    fill(flow, b",".join(b"%d" % number for number in range(300)))
    sql = f"{select('value')} WHERE NOT CAST(value AS STRING) RLIKE r'^(.*?,){{25}}P'"
    worker.put(flow.name, flow.config(transform_sql=sql, transform_timeout_ms="3000"))
    said = sentence(worker, flow)
    assert "within 3 s, and Spark cannot end it" in said, said
    assert "a pattern (RLIKE, regexp_...)" in said
    assert worker.says("Next try in 300 s")
    other.goes_on()
    heal(worker, flow)


def test_a_function_that_eats_memory(worker: ConnectWorker, other: Other, flow: Flow) -> None:
    fill(flow)
    worker.put(flow.name, misbehaving(flow, "greedy", transform_memory_mb="64"))
    said = sentence(worker, flow)
    where = f"{flow.topic}-0: the query fails at offset {AT}: "
    assert f"{where}Function greedy takes more memory than transform.memory.mb=64 allows" in said
    wait_written(flow, {0: AT, 1: COUNT})
    other.goes_on()
    heal(worker, flow)


def test_a_function_that_ends_its_process(worker: ConnectWorker, other: Other, flow: Flow) -> None:
    fill(flow)
    worker.put(flow.name, misbehaving(flow, "leaving"))
    said = sentence(worker, flow)
    where = f"{flow.topic}-0: the query fails at offset {AT}: "
    assert f"{where}A Python worker ended in the midst of the query" in said, said
    wait_written(flow, {0: AT, 1: COUNT})
    other.goes_on()
    heal(worker, flow)
