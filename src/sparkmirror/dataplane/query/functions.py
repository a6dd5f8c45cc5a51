"""The functions of a query: `package.module:name` in, functions that Spark can register out, each held to a limit of memory.

What is imported must be there on executors, too, where it is imported again.
"""

from __future__ import annotations

import importlib
import inspect
import types
import typing
from collections.abc import Callable
from functools import wraps
from typing import Any

from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from sparkmirror.errors import QueryRefused

from .memory import hold_to

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


def load(name: str, memory: int) -> UserDefinedFunction:
    """A function, called as it is called in its module; QueryRefused if there is none, or it is not one for single records."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise QueryRefused(f"{KEY} has {name!r}.", "Write package.module:name for each.")
    try:
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
            limited(made.func, memory),
            made.returnType,
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
        limited(found, memory), kind, attribute, PythonEvalType.SQL_BATCHED_UDF
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


def limited(function: Callable[..., Any], memory: int) -> Callable[..., Any]:
    """The function, in a process that does not get more memory than this on top of what it has."""
    if inspect.isgeneratorfunction(function):

        @wraps(function)
        def each(*args: Any) -> Any:
            hold_to(memory)
            yield from function(*args)

        return each

    @wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        hold_to(memory)
        return function(*args, **named)

    return call
