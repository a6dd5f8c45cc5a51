"""The demo on a screen: rows come in, a table that refreshes in place or a plain line goes out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table

from sparkmirror.tools.throughput import TopicRow

_LINE_EVERY_S = 3.0


class DemoView:
    """Shows the flow: on a terminal as a live table, elsewhere as a line every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._line_at = time.monotonic() + _LINE_EVERY_S

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, phase: str, sent: int, rows: Sequence[TopicRow]) -> None:
        """Bring the screen up to date."""
        if self._live is not None:
            self._live.update(table(phase, sent, rows), refresh=True)
        elif time.monotonic() >= self._line_at:
            self._line_at = time.monotonic() + _LINE_EVERY_S
            self._console.print(line(phase, sent, rows), soft_wrap=True)


def line(phase: str, sent: int, rows: Sequence[TopicRow]) -> str:
    """The whole flow in one line."""
    rate = sum(row.records_per_s for row in rows)
    size = sum(row.bytes_per_s for row in rows) / 1e6
    waits = [row.latency_ms for row in rows if row.latency_ms is not None]
    latency = f"{max(waits):.0f} ms" if waits else "-"
    return (
        f"{phase}: produced {sent:,}, copied {sum(row.records for row in rows):,}, "
        f"{rate:,.0f} records/s, {size:.2f} MB/s, "
        f"lag {sum(row.lag for row in rows):,}, latency {latency}"
    )


def table(phase: str, sent: int, rows: Sequence[TopicRow]) -> Table:
    """The flow with a row a topic."""
    view = Table(title=f"source → target: {phase}", caption=f"{sent:,} records produced")
    view.add_column("topic")
    for heading in ("partitions", "copied", "records/s", "MB/s", "lag", "latency p50"):
        view.add_column(heading, justify="right")
    for row in rows:
        view.add_row(
            row.topic,
            str(row.partitions),
            f"{row.records:,}",
            f"{row.records_per_s:,.0f}",
            f"{row.bytes_per_s / 1e6:.2f}",
            f"{row.lag:,}",
            "-" if row.latency_ms is None else f"{row.latency_ms:.0f} ms",
        )
    return view
