"""Rows of our own topics (positions, syncs, checkpoints, …) in batches that their topic takes.

How large a batch may be is a setting of the topic (`max.message.bytes`, 1 MiB by default), which not everybody may read: so
batches are cut well below the default, and smaller where the broker refuses one as too large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from sparkmirror.errors import BrokerError

from . import messages

Row = tuple[bytes, bytes | None]
T = TypeVar("T")

BATCH_BYTES: Final = 256 << 10
TOO_LARGE: Final = frozenset({messages.MESSAGE_TOO_LARGE, messages.RECORD_LIST_TOO_LARGE})
_ROW_BYTES = 32  # what a record costs beside its key and value, at most


def row_size(row: Row) -> int:
    """The bytes of a row in a batch, or a few more."""
    return len(row[0]) + len(row[1] or b"") + _ROW_BYTES


def cut(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """The items in their order, in parts of at most `most` bytes; one that is larger alone is a part by itself."""
    part: list[T] = []
    filled = 0
    for item in items:
        length = size(item)
        if part and filled + length > most:
            yield part
            part, filled = [], 0
        part.append(item)
        filled += length
    if part:
        yield part


def too_large_remedy(topic: str) -> str:
    return f"Raise max.message.bytes of topic {topic}."


def append_in_batches(
    topic: str, rows: Sequence[Row], append: Callable[[Sequence[Row]], object]
) -> None:
    """Append rows in their order, by waiting for each batch; those that are refused as too large are halved.

    BrokerError: `topic` refused a batch for another reason, or a single row as too large.
    """
    append_items(topic, rows, row_size, append)


def append_items(
    topic: str,
    items: Sequence[T],
    size: Callable[[T], int],
    append: Callable[[Sequence[T]], object],
) -> None:
    """The same for items that `append` makes rows of, several items to a row perhaps. `size`: the bytes of an item, about."""
    done, most = 0, BATCH_BYTES
    while done < len(items):
        part = next(cut(items[done:], size, most))
        try:
            append(part)
        except BrokerError as error:
            if error.code not in TOO_LARGE:
                raise
            if len(part) == 1:
                error.remedy = error.remedy or too_large_remedy(topic)
                raise
            most = sum(map(size, part)) // 2
        else:
            done += len(part)
