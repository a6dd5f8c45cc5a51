"""Functions of a query that do not raise: a function in; one that returns its answer, or what it raised, out.

It is told first what has become of the record so far, and does nothing with those that go no further.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import DataType, StringType, StructField, StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from .columns import KEPT
from .functions import FunctionFailed, shown

_ROWS = {PythonEvalType.SQL_BATCHED_UDF, PythonEvalType.SQL_ARROW_BATCHED_UDF}
_ARRAYS = getattr(PythonEvalType, "SQL_SCALAR_ARROW_UDF", -1)
_ITERATOR = getattr(PythonEvalType, "SQL_SCALAR_ARROW_ITER_UDF", -1)


def is_guardable(function: UserDefinedFunction) -> bool:
    return function.evalType in _ROWS or function.evalType in (_ARRAYS, _ITERATOR)


def guarded(function: UserDefinedFunction) -> UserDefinedFunction:
    """Gives a structure: the answer, and the error."""
    kind = function.returnType
    pair = StructType([StructField("answer", kind), StructField("error", StringType())])
    made: Callable[..., Any]
    if function.evalType in _ROWS:
        made = by_row(function.func)
    elif function.evalType == _ARRAYS:
        made = by_array(function.func, kind)
    else:
        made = by_iterator(function.func, kind)
    return UserDefinedFunction(made, pair, function._name, function.evalType)


def by_row(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(state: int, *args: Any) -> tuple[Any, str | None]:
        if state != KEPT:
            return None, None
        try:
            return function(*args), None
        except FunctionFailed as error:
            return None, shown(error)

    return call


def by_array(function: Callable[..., Any], kind: DataType) -> Callable[..., Any]:
    """All at once; where that raises, one by one."""

    def call(states: Any, *arrays: Any) -> Any:
        at = [index for index, state in enumerate(states.to_pylist()) if state == KEPT]
        answers, errors = _answers(
            function, [each.take(pa.array(at, pa.int32())) for each in arrays], len(at)
        )
        wanted = to_arrow_type(kind, timezone="UTC")
        found = pa.concat_arrays(
            [_whole(each).cast(wanted) for each in answers] or [pa.nulls(0, wanted)]
        )
        # From those that were asked about to all of them.
        texts: list[str | None] = [None] * len(states)
        places: list[int | None] = [None] * len(states)
        asked = iter(range(len(found)))
        for index, error in zip(at, errors, strict=True):
            if error is None:
                places[index] = next(asked)
            else:
                texts[index] = error
        values = found.take(pa.array(places, pa.int32()))
        return pa.StructArray.from_arrays(
            [values, pa.array(texts, pa.string())], names=["answer", "error"]
        )

    return call


def by_iterator(function: Callable[..., Any], kind: DataType) -> Callable[..., Any]:
    def one(*arrays: Any) -> Any:
        given = arrays[0] if len(arrays) == 1 else arrays
        return next(iter(function(iter([given]))))

    call = by_array(one, kind)

    def each(batches: Iterator[Any]) -> Iterator[Any]:
        for states, *arrays in batches:
            yield call(states, *arrays)

    return each


def _answers(
    function: Callable[..., Any], arrays: Sequence[Any], count: int
) -> tuple[list[Any], list[str | None]]:
    """Arrays of answers that follow each other, and for each row the error, which has no answer."""
    if not count:
        return [], []
    try:
        return [function(*arrays)], [None] * count
    except FunctionFailed as error:
        if count == 1:
            return [], [shown(error)]
    answers: list[Any] = []
    errors: list[str | None] = []
    for index in range(count):
        some, said = _answers(function, [each.slice(index, 1) for each in arrays], 1)
        answers += some
        errors += said
    return answers, errors


def _whole(array: Any) -> Any:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
