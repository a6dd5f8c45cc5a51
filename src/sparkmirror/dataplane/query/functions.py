"""The functions of a query: `package.module:name` in, functions that Spark can register out, each held to a limit of memory.

What is imported must be there on executors, too, where it is imported again.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import SparkContext
from pyspark.sql import udf as udf_module
from pyspark.sql.types import StringType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from sparkmirror.errors import QueryRefused, SparkError

from .memory import hold_to, lift

_TYPES = {str: "string", bytes: "binary", int: "bigint", float: "double", bool: "boolean"}
_BY_ROW = {
    PythonEvalType.SQL_BATCHED_UDF,
    PythonEvalType.SQL_ARROW_BATCHED_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_UDF,
    PythonEvalType.SQL_SCALAR_PANDAS_ITER_UDF,
    getattr(PythonEvalType, "SQL_SCALAR_ARROW_UDF", -1),
    getattr(PythonEvalType, "SQL_SCALAR_ARROW_ITER_UDF", -1),
}
KEY = "transform.functions"
MEMORY_KEY = "transform.memory.mb"
_MOST_TEXT = 1000
_here: dict[str, Callable[..., Any]] = {}
_LOADING = threading.RLock()


def load(name: str, memory: int) -> UserDefinedFunction:
    """A function, called as it is called in its module; QueryRefused if there is none, or it is not one for single records."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise QueryRefused(f"{KEY} has {name!r}.", "Write package.module:name for each.")
    try:
        with _types_unread():
            module = importlib.import_module(module_name)
    except Exception as error:
        raise QueryRefused(
            f"{KEY}: module {module_name} cannot be imported: {type(error).__name__}: {error}.",
            "It must be installed where the worker and Spark's executors run, for the Python that runs them.",
        ) from error
    found = getattr(module, attribute, None)
    if found is None:
        raise QueryRefused(f"{KEY}: module {module_name} has no {attribute}.")
    return _function(name, attribute, found, memory)


def _function(name: str, attribute: str, found: Any, memory: int) -> UserDefinedFunction:
    made = getattr(found, "_unwrapped", found)
    if isinstance(made, UserDefinedFunction):
        if made.evalType not in _BY_ROW:
            raise QueryRefused(f"{KEY}: {name} is not a function of single records.")
        return UserDefinedFunction(
            limited(name, memory),
            made._returnType,  # as it is written: the one that was read may not be the real one
            attribute,
            made.evalType,
            made.deterministic,
        )
    if not callable(found):
        raise QueryRefused(f"{KEY}: {name} is no function.")
    kind = _TYPES.get(_hint(found))
    if kind is None:
        raise QueryRefused(
            f"{KEY}: {name} does not say what it returns.",
            "Annotate it with str, bytes, int, float or bool, or make it with pyspark.sql.functions.udf and a type.",
        )
    return UserDefinedFunction(
        limited(name, memory), kind, attribute, PythonEvalType.SQL_BATCHED_UDF
    )


def _hint(function: Any) -> Any:
    """What a function says that it returns, without `None`."""
    try:
        hint = typing.get_type_hints(function).get("return")
    except (NameError, TypeError):
        return None
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
        return kinds[0] if len(kinds) == 1 else None
    return hint


class FunctionFailed(Exception):
    """What a function raised, in one line that begins with its name: the only one of a trace that is shown."""


def shown(error: FunctionFailed) -> str:
    """As a sentence begins."""
    text = str(error)
    return f"{text[:1].upper()}{text[1:]}"


def limited(name: str, memory: int) -> Callable[..., Any]:
    """The function `package.module:name`, in a process that does not get more memory than this on top of what it has.

    It goes to Python workers by its name: what its module keeps is there for all jobs of a worker.
    """
    attribute = name.partition(":")[2]

    def call(*args: Any, **named: Any) -> Any:
        function = _here.get(name) or _found_here(name)
        hold_to(memory)
        try:
            found = function(*args, **named)
        except Exception as error:
            raise _failed(attribute, memory, error) from error
        return _watched(attribute, memory, found) if isinstance(found, Iterator) else found

    call.__name__ = attribute
    return call


def _found_here(name: str) -> Callable[..., Any]:
    """The function in this Python worker. That it is not here is not the fault of any record."""
    module_name, _, attribute = name.partition(":")
    lift()
    try:
        with _types_unread():
            found = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:
        raise SparkError(
            f"{KEY}: {name} cannot be had in a Python worker: {type(error).__name__}: {error}"
        ) from error
    made = getattr(found, "_unwrapped", found)
    _here[name] = function = made.func if isinstance(made, UserDefinedFunction) else found
    return function


@contextlib.contextmanager
def _types_unread() -> Iterator[None]:
    """Types that a module gives as text, `udf("string")`, are read by the JVM. Where there is none, some type stands for them."""
    module: Any = udf_module

    def read(text: str) -> Any:
        return StringType() if SparkContext._active_spark_context is None else reader(text)

    with _LOADING:  # several connectors may be looked at at once
        reader = module._parse_datatype_string
        module._parse_datatype_string = read
        try:
            yield
        finally:
            module._parse_datatype_string = reader


def _watched(name: str, memory: int, found: Iterator[Any]) -> Iterator[Any]:
    """What a function gives that gives one answer after the other, without being a generator itself."""
    try:
        yield from found
    except Exception as error:
        raise _failed(name, memory, error) from error


def _failed(name: str, memory: int, error: Exception) -> FunctionFailed:
    if isinstance(error, MemoryError) or type(error).__name__ == "ArrowMemoryError":
        lift()  # what is left to do here needs some
        return FunctionFailed(
            f"function {name} takes more memory than {MEMORY_KEY}={memory >> 20} allows"
        )
    lines = str(error).strip().splitlines()
    text = lines[0][:_MOST_TEXT] if lines else ""
    return FunctionFailed(f"function {name} raised {type(error).__name__}{text and ': '}{text}")
