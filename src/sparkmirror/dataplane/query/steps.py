"""The two ends of a query in a Spark task: slices from copy tasks in, Arrow for Spark out; and what came out back to them.

Both run in Python workers that serve one job after the other, and keep their connections between them. What a job is about (which
copy tasks have records, how it is called) is told by a local property of the job, so that its plan can be made once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext

from sparkmirror.dataplane.links.address import Address, SessionSecret
from sparkmirror.errors import SparkError

from . import memory
from .columns import DROPPED, NUMBER, RAISED, STATE, Feed, desk_of
from .feeding import schema_of
from .frames import Call, Kind, Message, headed, said, weight_of

ORDER = "sparkmirror.query.order"
"""The local property that says what a job is about. Spark's event log shows it: it holds no secret."""

_MOST_CALLS = 64
_calls: dict[Address, Call] = {}


class Order:
    """What one job is about."""

    def __init__(self, text: str) -> None:
        fields = json.loads(text)
        self.job: int = fields["job"]
        self.query: int = fields["query"]
        self.alone: bool = fields["alone"]
        """Whether it is for one suspect."""
        self.limit: int = fields["limit"]
        self.careful: bool = fields["careful"]
        """Whether its plan is the careful one, which is given what the query needs as it is."""
        self.feed = Feed.read(fields["feed"])
        """What is asked for of a record."""
        self.copy_tasks = {int(n): Address(*each) for n, each in fields["copy tasks"].items()}

    @classmethod
    def of_task(cls, context: TaskContext | None) -> Order:
        text = None if context is None else context.getLocalProperty(ORDER)
        if text is None:
            raise SparkError("A step of a query was run without an order.")
        return cls(text)

    def ask(self, task: int, attempt: int) -> bytes:
        """What a task says to get a slice. Of two attempts the later one counts: it gets what the other had got."""
        return said(
            Kind.TAKE,
            job=self.job,
            query=self.query,
            alone=self.alone,
            careful=self.careful,
            task=task,
            attempt=attempt,
        )


def take(secret: SessionSecret, batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    """The first step: slices from all copy tasks, up to a limit. Its rows say nothing, but that there is a task."""
    memory.lift()
    for _ in batches:
        pass
    context = TaskContext.get()
    order = Order.of_task(context)
    task, attempt = (context.partitionId(), context.attemptNumber()) if context else (0, 0)
    numbers = list(order.copy_tasks)
    begin = task % max(1, len(numbers))
    left = order.limit
    request, schema = order.ask(task, attempt), schema_of(order.feed)
    for number in numbers[begin:] + numbers[:begin]:
        address = order.copy_tasks[number]
        while left > 0:
            message = _answer(secret, address, request)
            if message.kind is not Kind.SLICE:
                break
            weight, batch = weight_of(message.payload)
            left -= weight
            yield pa.ipc.read_record_batch(pa.py_buffer(batch), schema)


def give(secret: SessionSecret, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The last step: what the query gave, to the copy tasks that it came from.

    Gives one row: how many records there were, and on how many of them the query raised (which only a careful plan tells).
    """
    memory.lift()
    order: Order | None = None
    told: set[Address] = set()
    count = bad = 0
    for batch in batches:
        order = order or Order.of_task(TaskContext.get())
        if STATE in batch.schema.names:
            batch, raised = _sifted(batch)
            bad += raised
        for number, part in by_desk(batch):
            address = order.copy_tasks[number]
            if address not in told:
                told.add(address)
                schema = bytes(memoryview(batch.schema.serialize())).hex()
                _say(secret, address, said(Kind.SCHEMA, job=order.job, schema=schema))
            _say(secret, address, *headed(Kind.RESULT, memoryview(part.serialize())))
        count += batch.num_rows
    if order is not None:
        for address in told:
            _answer(secret, address, said(Kind.END, job=order.job))
    yield pa.RecordBatch.from_pydict(
        {"records": pa.array([count], pa.int64()), "bad": pa.array([bad], pa.int64())}
    )


def _sifted(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Without the records that the query drops; and how many it raised on."""
    states = batch.column(STATE).to_pylist()
    kept = [index for index, state in enumerate(states) if state != DROPPED]
    if len(kept) < len(states):
        batch = batch.take(pa.array(kept, pa.int32()))
    return batch, states.count(RAISED)


def by_desk(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A batch cut where the copy task changes: a step takes from one after the other."""
    numbers = batch.column(NUMBER)
    start, count = 0, batch.num_rows
    while start < count:
        desk = desk_of(numbers[start].as_py())
        low, high = start, count
        while high - low > 1:  # the last that is of the same
            middle = (low + high) // 2
            if desk_of(numbers[middle].as_py()) == desk:
                low = middle
            else:
                high = middle
        yield desk, batch.slice(start, high - start)
        start = high


def _say(secret: SessionSecret, address: Address, *data: bytes | memoryview) -> Call:
    """Say something to a copy task, over the connection that there is, or a new one."""
    call = _calls.get(address)
    if call is None:
        while len(_calls) >= _MOST_CALLS:
            _calls.pop(next(iter(_calls))).close()
        call = _calls[address] = Call.to(address, secret)
    try:
        call.send(*data)
    except SparkError:
        _calls.pop(address).close()
        raise
    return call


def _answer(secret: SessionSecret, address: Address, data: bytes) -> Message:
    """What a copy task says to that."""
    call = _say(secret, address, data)
    try:
        return call.receive()
    except SparkError:
        _calls.pop(address).close()
        raise
