"""Functions that a query calls, good and bad, as users write them: the tests put this directory on the workers' path.

A record whose value begins with `bad` is the one that a function does not get along with.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import functions
from pyspark.sql.functions import udf


def _is_bad(value: bytes | None) -> bool:
    return value is not None and value.startswith(b"bad")


def shout(value: bytes | None) -> bytes | None:
    return None if value is None else value.upper()


def picky(value: bytes | None) -> bytes | None:
    if _is_bad(value):
        raise ValueError("it is not to my taste\nand here is why")
    return shout(value)


@udf("string")  # type: ignore[call-overload, untyped-decorator, unused-ignore]
def picky_udf(value: bytes) -> str:
    if _is_bad(value):
        raise KeyError("picky")
    return value.decode().upper()


@udf("string", useArrow=True)  # type: ignore[call-overload, untyped-decorator, unused-ignore]
def picky_by_arrow(value: bytes) -> str:
    if _is_bad(value):
        raise KeyError("picky")
    return value.decode().upper()


if hasattr(functions, "arrow_udf"):  # PySpark 4.1

    @functions.arrow_udf("binary")  # type: ignore[attr-defined, untyped-decorator, unused-ignore]
    def picky_arrays(values: pa.Array) -> pa.Array:
        return pa.array([picky(value) for value in values.to_pylist()], pa.binary())

    @functions.arrow_udf("binary")  # type: ignore[attr-defined, untyped-decorator, unused-ignore]
    def picky_iterator(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:
        for values in batches:
            yield pa.array([picky(value) for value in values.to_pylist()], pa.binary())


def stuck(value: bytes) -> bytes:
    """Does not return; who it is is left in the file that the record names."""
    if _is_bad(value):
        with Path(value.decode().partition(":")[2]).open("a") as file:
            file.write(f"{os.getpid()}\n")
        while True:
            time.sleep(3600)
    return value


def greedy(value: bytes) -> bytes:
    kept: list[bytearray] = []
    while _is_bad(value):
        kept.append(bytearray(8 << 20))
    return value


def leaving(value: bytes) -> bytes:
    if _is_bad(value):
        os._exit(3)
    return value
