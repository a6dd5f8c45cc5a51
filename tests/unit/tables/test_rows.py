"""What the tables say of positions, reports and checkpoints: unknown is NULL, never 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparkmirror.formats.position import Numbering, Position, TargetPosition
from sparkmirror.formats.progress import PartitionProgress
from sparkmirror.tables import groups, lag, positions
from sparkmirror.tables.columns import Columns, Row, batches, ddl
from sparkmirror.tables.flows import Flow, read_flows

KEY = ("orders", 3)
POSITION = Position(99, Numbering(7, 1), sequence=90, target_offset=95, source_id="ab" * 16)


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
    )
    return read_flows(path, None, None)[0]


def named(columns: Columns, row: Row) -> dict[str, Any]:
    names = [name for name, _ in columns]
    return dict(zip(names, row, strict=True))


def report(state: str = "RUNNING", offset: int = 50, age: int = -1) -> lag._Report:
    seen = PartitionProgress(*KEY, "A.orders", offset, -1, 0, 0, -1, age, state, "no slot")
    return lag._Report(2, "10.0.0.1", 1_700_000_000_000, seen)


# -- lag ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("position", "seen", "end", "expected"),
    [
        (POSITION, None, 120, (100, 120, 20)),
        (POSITION, report(offset=50), 120, (100, 120, 20)),
        (POSITION, None, None, (100, None, None)),
        (POSITION, None, 100, (100, 100, 0)),
        (POSITION, None, 99, (100, 99, None)),  # another topic, or one that was cut back
        (Position(-1), None, 5, (0, 5, 5)),
        (None, report(offset=50), 120, (50, 120, 70)),
        (None, report("WAITING", offset=0), 120, (None, 120, None)),
    ],
)
def test_lag(
    flow: Flow,
    position: Position | None,
    seen: lag._Report | None,
    end: int | None,
    expected: tuple[int | None, ...],
) -> None:
    row = named(lag.COLUMNS, lag._row(flow, KEY, position, seen, end))
    assert (row["next_offset"], row["source_end_offset"], row["lag"]) == expected


def test_what_only_a_report_tells(flow: Flow) -> None:
    row = named(lag.COLUMNS, lag._row(flow, KEY, POSITION, report("FAILED"), 120))
    assert (row["task"], row["state"], row["reason"]) == (2, "FAILED", "no slot")
    assert (row["record_age_ms"], row["host"]) == (None, "10.0.0.1")
    row = named(lag.COLUMNS, lag._row(flow, KEY, POSITION, report(age=0), 120))
    assert row["record_age_ms"] == 0
    row = named(lag.COLUMNS, lag._row(flow, KEY, POSITION, None, 120))
    told = ("task", "record_age_ms", "state", "reason", "reported_at", "host")
    assert {row[name] for name in told} == {None}
    assert row["remote_topic"] == "A.orders"


def test_a_flow_has_lag_only_of_what_it_copies(flow: Flow) -> None:
    is_copied = lag._copied_topics(flow)
    assert is_copied("orders")
    assert not is_copied("B.orders")
    assert not is_copied("mm2-offsets.B.internal")


# -- positions ------------------------------------------------------------------------------------


def placed(flow: Flow, position: Position) -> list[dict[str, Any]]:
    columns = positions.COLUMNS[5:]
    return [named(columns, row) for row in positions._places(flow, KEY, position)]


def test_positions(flow: Flow) -> None:
    (row,) = placed(flow, POSITION)
    assert (row["remote_topic"], row["remote_partition"]) == ("A.orders", 3)
    assert (row["target_offset"], row["sequence"]) == (95, 90)
    assert (row["producer_id"], row["producer_epoch"]) == (7, 1)
    assert (row["source_topic_id"], row["target_topic_id"]) == ("ab" * 16, None)
    (plain,) = placed(flow, Position(99))
    assert [value for value in plain.values() if value is not None] == ["A.orders"]


def test_a_row_for_each_target(flow: Flow) -> None:
    targets = (TargetPosition("A.red", 0, 99, 5, 40), TargetPosition("A.blue", 1, 99, 6, 50))
    routed = Position(99, Numbering(7, 1), transforms="route", targets=targets)
    assert [
        (row["remote_topic"], row["remote_partition"], row["sequence"], row["target_offset"])
        for row in placed(flow, routed)
    ] == [("A.red", 0, 5, 40), ("A.blue", 1, 6, 50)]
    (none,) = placed(flow, Position(99, Numbering(7, 1), transforms="route"))
    assert (none["remote_topic"], none["producer_id"]) == (None, 7)


# -- groups ---------------------------------------------------------------------------------------


def test_what_a_remote_topic_is_called_on_the_source(flow: Flow) -> None:
    assert groups._source_topic(flow, "A.orders") == "orders"
    assert groups._source_topic(flow, "A.C.orders") == "C.orders"
    assert groups._source_topic(flow, "orders") == "B.orders", "a group that comes home"


# -- batches --------------------------------------------------------------------------------------


def test_rows_leave_in_batches() -> None:
    columns: Columns = (("n", "BIGINT"), ("at", "TIMESTAMP"), ("group", "STRING"))
    taken = 0

    def rows() -> Any:
        nonlocal taken
        for number in range(25_000):
            taken += 1
            yield (number, None if number % 2 else 1_700_000_000_123, "g")

    found = batches(columns, rows())
    first = next(found)
    assert (first.num_rows, taken) == (10_000, 10_000), "no more rows at a time"
    assert [first.num_rows, *(one.num_rows for one in found)] == [10_000, 10_000, 5_000]
    assert first.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert first.column("at").slice(0, 2).cast(pa.int64()).to_pylist() == [
        1_700_000_000_123_000,
        None,
    ]
    assert list(batches(columns, iter(()))) == []
    assert ddl(columns) == "`n` BIGINT, `at` TIMESTAMP, `group` STRING"
