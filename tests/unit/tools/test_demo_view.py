"""What the demo shows, on a terminal and elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from sparkmirror.tools.comparison import Comparison, Difference
from sparkmirror.tools.demo import Verdict
from sparkmirror.tools.demo_view import line, table
from sparkmirror.tools.throughput import TopicRow

ROWS = [
    TopicRow("shop.clicks", 12, 14_000, 1_400, 2_000_000, 3, 4.0),
    TopicRow("shop.orders", 8, 4_000, 400.4, 500_000, 1, None),
]


def test_a_line_sums_the_topics_up() -> None:
    assert line("running", 18_004, ROWS) == (
        "running: produced 18,004, copied 18,000, 1,800 records/s, 2.50 MB/s, lag 4, latency 4 ms"
    )
    assert "latency -" in line("starting", 0, [])


def test_the_table_has_a_row_a_topic() -> None:
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(table("running", 18_004, ROWS))
    shown = console.export_text().splitlines()
    (clicks,) = [text for text in shown if "shop.clicks" in text]
    assert [cell.strip() for cell in clicks.strip("│ ").split("│")] == [
        "shop.clicks", "12", "14,000", "1,400", "2.00", "3", "4 ms",
    ]  # fmt: skip
    (orders,) = [text for text in shown if "shop.orders" in text]
    assert orders.strip("│ ").endswith("-")


def test_the_verdict_says_equality_and_the_rate_in_one_line() -> None:
    verdict = Verdict(Comparison(24, 1_234_567, ()), 1_234_567, 30.0)
    assert verdict.equal
    assert str(verdict) == (
        "target equals source: 1,234,567 records in 24 partitions, none missing, none twice; "
        "41,152 records/s"
    )


def test_the_verdict_is_no_without_records_or_with_too_few() -> None:
    nothing = Verdict(Comparison(24, 0, ()), 0, 1.0)
    assert not nothing.equal
    fewer = Verdict(Comparison(24, 9, ()), 10, 1.0)
    assert not fewer.equal
    assert "produced 10 records, the clusters hold 9" in str(fewer)
    wrong = Verdict(Comparison(24, 9, (Difference("t", 1, "twice", 5, 6),)), 9, 1.0)
    assert not wrong.equal
    assert str(wrong).startswith("target differs from source: t-1: twice")
