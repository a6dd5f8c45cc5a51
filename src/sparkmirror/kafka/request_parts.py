"""Parts of admin requests: what to ask about in, lists that fit one request each out, and the broker's answers to them.

Brokers limit a request in ways that a client cannot ask for. A KRaft controller writes at most 10,000 records for one request, a
group coordinator at most one batch of its log; both refuse the whole request. So every request that names topics, partitions,
groups or ACLs is cut by a bound that brokers usually take, and a part that a broker refuses as too large is halved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sparkmirror.kafka import messages

T = TypeVar("T")
R = TypeVar("R")
_UNLIMITED = 1 << 62
_TOO_LARGE_CODES = (
    messages.MESSAGE_TOO_LARGE,
    messages.RECORD_LIST_TOO_LARGE,
    messages.INVALID_COMMIT_OFFSET_SIZE,
)
# "Unable to perform excessively large batch operation.", "Excessively large number of partitions per request."
_TOO_LARGE_TEXT = "excessively large"


def is_too_large(row: Any) -> bool:
    """Whether a row of an answer says that the request as a whole was too large."""
    if row.error_code == messages.POLICY_VIOLATION:
        return _TOO_LARGE_TEXT in (getattr(row, "error_message", None) or "").lower()
    return row.error_code in _TOO_LARGE_CODES


@dataclass(frozen=True, slots=True)
class Bound:
    """The most that one request carries: items, and the sum of their weights where items differ in size."""

    items: int
    weight: int = _UNLIMITED

    def __post_init__(self) -> None:
        if self.items < 1 or self.weight < 1:
            raise ValueError(f"a request cannot carry {self.items} items of weight {self.weight}")

    def halved(self, items: int, weight: int) -> Bound:
        """The bound after a broker refused a part of so many items and so much weight."""
        return Bound(max(1, min(self.items, items // 2)), max(1, min(self.weight, weight // 2)))


def _equal_weight(_: object) -> int:
    return 1


def cut(
    items: Sequence[T], bound: Bound, weigh: Callable[[T], int] = _equal_weight
) -> Iterator[Sequence[T]]:
    """The items in parts within the bound, in their order; an item that is too heavy is a part of its own."""
    start = 0
    while start < len(items):
        end = _end(items, start, bound, weigh)
        yield items[start:end]
        start = end


def ask_in_parts(
    items: Sequence[T],
    bound: Bound,
    ask: Callable[[Sequence[T]], Sequence[R]],
    weigh: Callable[[T], int] = _equal_weight,
    is_refused: Callable[[R], bool] = is_too_large,
) -> Iterator[tuple[Sequence[T], Sequence[R]]]:
    """Ask about the items part by part; each part with the rows of the broker's answer.

    A part that the broker refuses as too large (`is_refused`, of any row) is asked again in halves, and the parts after it are as
    small. A single item that is refused is given with its refusal.
    """
    start = 0
    while start < len(items):
        end = _end(items, start, bound, weigh)
        part = items[start:end]
        rows = ask(part)
        if len(part) > 1 and any(map(is_refused, rows)):
            bound = bound.halved(len(part), sum(map(weigh, part)))
            continue
        yield part, rows
        start = end


def _end(items: Sequence[T], start: int, bound: Bound, weigh: Callable[[T], int]) -> int:
    """Where the part that begins at `start` ends: at least one item later."""
    most = min(len(items), start + bound.items)
    end, left = start + 1, bound.weight - weigh(items[start])
    while end < most and (left := left - weigh(items[end])) >= 0:
        end += 1
    return end
