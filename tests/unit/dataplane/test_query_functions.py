"""Functions of a query as they run in a Python worker: found by name, held to their memory, one line for what they raise."""

from __future__ import annotations

import importlib
import multiprocessing
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import BinaryType

from sparkmirror.dataplane.query import functions, memory
from sparkmirror.dataplane.query.causes import cause_of, why
from sparkmirror.dataplane.query.columns import DROPPED, KEPT, RAISED
from sparkmirror.dataplane.query.functions import FunctionFailed, limited, load
from sparkmirror.dataplane.query.guards import by_array, by_iterator, by_row
from sparkmirror.errors import QueryRefused, SparkError

PLENTY = 1 << 40
MODULE = """
from pyspark.sql.functions import udf

calls = []

def upper(value: bytes | None) -> bytes | None:
    calls.append(value)
    if value == b"bad":
        raise ValueError("first line\\nsecond line")
    return value and value.upper()

@udf("string")
def typed_as_text(value):
    return value.decode()

def untyped(value):
    return value

def greedy(value: bytes) -> bytes:
    kept = []
    while True:
        kept.append(bytearray(1 << 20))

def several(batches):
    for value in batches:
        if value == b"bad":
            raise KeyError("x")
        yield value

answer = 42
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = f"functions_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield name
    sys.modules.pop(name, None)
    functions._here.clear()
    memory.lift()


# -- in the driver ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("upper", "package.module:name"),
        ("no.such:upper", "module no.such cannot be imported: ModuleNotFoundError"),
        ("{module}:nothing", "has no nothing"),
        ("{module}:answer", "is no function"),
        ("{module}:untyped", "does not say what it returns"),
    ],
)
def test_what_is_no_function_is_refused(module: str, name: str, words: str) -> None:
    # A module whose types are texts needs Spark to be there.
    with functions._types_unread(), pytest.raises(QueryRefused) as refused:
        load(name.format(module=module), PLENTY)
    assert words in str(refused.value)


def test_a_function_with_hints_has_their_type(module: str) -> None:
    with functions._types_unread():
        made = load(f"{module}:upper", PLENTY)
    assert made._name == "upper"
    assert made._returnType == "binary"
    assert made.func(b"a") == b"A"


def test_a_type_that_is_a_text_is_kept_for_spark_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a function that comes from a module further in, which is imported once only."""
    name = f"package_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("from .inner import count\n")
    (tmp_path / name / "inner.py").write_text(
        "from pyspark.sql.functions import udf\n@udf('int')\ndef count(value): ...\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for _ in range(2):
        assert load(f"{name}:count", PLENTY)._returnType == "int"
    for each in (name, f"{name}.inner"):
        sys.modules.pop(each)


# -- in a worker ------------------------------------------------------------------------------------


def test_a_function_is_found_by_its_name_and_its_module_stays(module: str) -> None:
    call = limited(f"{module}:upper", PLENTY)
    assert module not in sys.modules
    assert [call(b"a"), call(None)] == [b"A", None]
    assert sys.modules[module].calls == [b"a", None]


def test_a_type_that_is_a_text_does_no_harm_where_there_is_no_spark(module: str) -> None:
    assert limited(f"{module}:typed_as_text", PLENTY)(b"a") == "a"


def test_what_is_raised_is_one_line_with_the_name(module: str) -> None:
    with pytest.raises(FunctionFailed) as failed:
        limited(f"{module}:upper", PLENTY)(b"bad")
    assert str(failed.value) == "function upper raised ValueError: first line"


def test_what_is_raised_between_answers_is_the_same(module: str) -> None:
    found = limited(f"{module}:several", PLENTY)(iter([b"a", b"bad"]))
    assert next(found) == b"a"
    with pytest.raises(FunctionFailed, match="function several raised KeyError: 'x'"):
        next(found)


def test_a_module_that_is_not_on_the_executor_is_no_records_fault() -> None:
    with pytest.raises(SparkError, match="no_such_module:f cannot be had in a Python worker"):
        limited("no_such_module:f", PLENTY)(b"a")


def _in_a_process(work: Callable[[], Any]) -> Any:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=lambda: theirs.send(work()))
    process.start()
    assert ours.poll(60)
    found = ours.recv()
    process.join(60)
    return found


def test_more_memory_than_allowed_names_the_key_and_leaves_the_worker_usable(module: str) -> None:
    def work() -> tuple[str, int]:
        try:
            limited(f"{module}:greedy", 64 << 20)(b"a")
        except FunctionFailed as error:
            return str(error), len(bytearray(128 << 20))
        return "", 0

    said, after = _in_a_process(work)
    assert said == "function greedy takes more memory than transform.memory.mb=64 allows"
    assert after == 128 << 20


def test_a_limit_holds_until_it_is_lifted_or_another_is_set() -> None:
    def fits(size: int) -> bool:
        try:
            return len(bytearray(size)) == size
        except MemoryError:
            return False

    def work() -> list[bool]:
        found = []
        memory.hold_to(64 << 20)
        found.append(fits(256 << 20))
        memory.hold_to(512 << 20)
        found.append(fits(256 << 20))
        memory.hold_to(64 << 20)
        found.append(fits(256 << 20))
        memory.lift()
        found.append(fits(256 << 20))
        return found

    assert _in_a_process(work) == [False, True, False, True]


# -- guarded ----------------------------------------------------------------------------------------


def test_a_guarded_function_returns_what_it_raises(module: str) -> None:
    call = by_row(limited(f"{module}:upper", PLENTY))
    assert call(KEPT, b"a") == (b"A", None)
    assert call(KEPT, b"bad") == (None, "Function upper raised ValueError: first line")


@pytest.mark.parametrize("state", [DROPPED, RAISED])
def test_a_guarded_function_leaves_records_alone_that_go_no_further(
    module: str, state: int
) -> None:
    call = by_row(limited(f"{module}:upper", PLENTY))
    call(KEPT, b"a")
    assert call(state, b"bad") == (None, None)
    assert sys.modules[module].calls == [b"a"]


@pytest.mark.parametrize("is_iterator", [False, True])
def test_a_guarded_function_of_arrays_finds_the_rows_it_raises_on(is_iterator: bool) -> None:
    def arrays(one: Any, other: Any) -> Any:
        pairs = list(zip(one.to_pylist(), other.to_pylist(), strict=True))
        if (b"bad", 1) in pairs:
            raise FunctionFailed(f"function f raised ValueError: {len(pairs)}")
        return pa.array([value * times for value, times in pairs], pa.binary())

    states = pa.array([KEPT, DROPPED, KEPT, KEPT, RAISED, KEPT], pa.int32())
    values = pa.array([b"a", b"bad", b"bad", b"b", b"bad", b"c"], pa.binary())
    numbers = pa.array([1, 1, 1, 2, 1, 3], pa.int64())
    if is_iterator:

        def several(batches: Iterator[tuple[Any, Any]]) -> Iterator[Any]:
            return (arrays(one, other) for one, other in batches)

        made = by_iterator(several, BinaryType())
        first, empty = made(
            iter([(states, values, numbers), (states[1:2], values[1:2], numbers[1:2])])
        )
        assert empty.to_pylist() == [{"answer": None, "error": None}]
    else:
        first = by_array(arrays, BinaryType())(states, values, numbers)
    nothing = {"answer": None, "error": None}
    assert first.to_pylist() == [
        {"answer": b"a", "error": None},
        nothing,
        {"answer": None, "error": "Function f raised ValueError: 1"},
        {"answer": b"bb", "error": None},
        nothing,
        {"answer": b"ccc", "error": None},
    ]


# -- what is said of it -----------------------------------------------------------------------------

_OF_A_FUNCTION = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "f.py", line 3, in picky
    raise ValueError("no")
ValueError: no

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "functions.py", line 9, in call
    raise _failed(name, memory, error) from error
sparkmirror.dataplane.query.functions.FunctionFailed: function picky raised ValueError: no
"""
_OF_SPARK = """[CAST_INVALID_INPUT] The value 'bad' of the type "STRING" cannot be cast to "INT". SQLSTATE: 22018
== SQL (line 1, position 8) ==
SELECT CAST(value AS INT) FROM records
       ^^^^^^^^^^^^^^^^^^
"""
_OF_A_STEP = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "steps.py", line 3, in take
sparkmirror.errors.SparkError: nobody answers on 127.0.0.1:1: refused
"""
_OF_PYSPARK = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "serializers.py", line 3, in dump
    raise X
pyspark.errors.exceptions.base.PySparkValueError: [FIELD] a field
  is missing
"""
_LOST = (
    "An error occurred while calling o1.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage failure: "
    "Task 0 in stage 5.0 failed 1 times, most recent failure: Lost task 0.0 in stage 5.0 (TID 9) (h executor driver): "
)
_CRASH = (
    f"{_LOST}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat x"
)
_OVERFLOW = f"{_LOST}java.lang.StackOverflowError\n\tat java.util.regex"


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        (_OF_A_FUNCTION, "query", "Function picky raised ValueError: no"),
        (_OF_SPARK, "query", _OF_SPARK.splitlines()[0]),
        (_OF_A_STEP, "lost", "Nobody answers on 127.0.0.1:1: refused"),
        (
            _OF_PYSPARK,
            "query",
            "pyspark.errors.exceptions.base.PySparkValueError: [FIELD] a field",
        ),
        (
            _CRASH,
            "crash",
            "A Python worker ended in the midst of the query, each time it was tried.",
        ),
        (_OVERFLOW, "crash", "Spark fails with java.lang.StackOverflowError"),
    ],
)
def test_the_line_that_tells(text: str, reason: str, line: str) -> None:
    assert why(PySparkException(text)) == (reason, line)


def test_a_session_that_is_gone_is_no_records_fault() -> None:
    assert why(ConnectionResetError("reset"))[0] == "lost"
    assert cause_of("") == "unknown"


GATE = """
import threading
first_is_here, second_is_here, first_is_done = (threading.Event() for _ in range(3))
"""
FIRST = """
from pyspark.sql.functions import udf
import gate_of_two
gate_of_two.first_is_here.set()
gate_of_two.second_is_here.wait(0.3)  # it does not come, unless both are loaded at once

@udf("int")
def first(value):
    return 1
"""
SECOND = """
from pyspark.sql.functions import udf
import gate_of_two
gate_of_two.second_is_here.set()
gate_of_two.first_is_done.wait(10)

@udf("int")
def second(value):
    return 2
"""


def test_functions_of_two_connectors_are_loaded_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one is loaded without Spark, types are not read; that must not end while another is."""
    monkeypatch.syspath_prepend(tmp_path)
    texts = {"gate_of_two": GATE, "first_of_two": FIRST, "second_of_two": SECOND}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    gate = importlib.import_module("gate_of_two")

    def load_first() -> str:
        loaded = load("first_of_two:first", PLENTY)
        gate.first_is_done.set()
        return loaded._name

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(load_first)
        assert gate.first_is_here.wait(10)
        second = pool.submit(load, "second_of_two:second", PLENTY)
        assert (first.result(30), second.result(30)._name) == ("first", "second")
    for name in texts:
        sys.modules.pop(name, None)


def test_what_spark_says_of_a_value_is_kept_up_to_a_length() -> None:
    """It quotes the value, and is kept for every bad record of a slice."""
    kind, message = why(PySparkException("The value '" + "0" * 1_000_000 + "' is no number"))
    assert kind == "query"
    assert len(message) == 1000
