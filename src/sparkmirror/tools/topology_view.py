"""A tree of flows on a screen or for a script: clusters with their upstream trees in, lines or JSON objects out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .topology import Upstream, is_late


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster that was asked: what it answered, or why it did not."""

    alias: str | None
    address: str
    upstream: tuple[Upstream, ...] = ()
    error: str | None = None

    @property
    def title(self) -> str:
        return self.address if self.alias is None else f"{self.alias} ({self.address})"


@dataclass(frozen=True, slots=True)
class Clock:
    """The time of the look, and how old a heartbeat may be; in milliseconds."""

    now: int
    stale_after: int

    def age(self, at: int) -> str:
        """How long ago that was, and whether that is too long."""
        mark = " STALE" if is_late(at, self.now, self.stale_after) else ""
        return f"{duration(self.now - at)} ago{mark}"


def duration(milliseconds: int) -> str:
    """A length of time in one unit; nothing is less than none, as clocks differ."""
    seconds = max(0, milliseconds) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size, most in (("s", 1, 120), ("min", 60, 120), ("h", 3600, 48)):
        if seconds < most * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86400:.0f} days"


def drawing(clusters: Sequence[ClusterView], clock: Clock) -> list[str]:
    """Each cluster with the clusters upstream of it as a tree below it."""
    lines: list[str] = []
    for cluster in clusters:
        if cluster.error is not None:
            lines.append(f"{cluster.title}: cannot be asked. {cluster.error}")
            continue
        lines.append(cluster.title)
        lines += _branches(cluster.upstream, clock, "")
        if not cluster.upstream:
            lines.append("└── no flow into it is known")
    return lines


def _branches(nodes: Sequence[Upstream], clock: Clock, indent: str) -> Iterator[str]:
    for index, node in enumerate(nodes):
        is_last = index == len(nodes) - 1
        yield f"{indent}{'└── ' if is_last else '├── '}{node.alias}  {_signs(node, clock)}"
        yield from _branches(node.upstream, clock, indent + ("    " if is_last else "│   "))


def _signs(node: Upstream, clock: Clock) -> str:
    """Hops and signs of life of one cluster."""
    found = []
    if node.hops > 0:
        found.append(f"{node.hops} hop{'s' if node.hops > 1 else ''}")
    if node.topic is not None:
        text = "never STALE" if node.copied_at is None else clock.age(node.copied_at)
        found.append(f"last heartbeat copied {text}")
    if node.announced_at is not None:
        found.append(f"announced {clock.age(node.announced_at)}")
    if node.topic is None:
        found.append("its own heartbeats do not arrive")
    return ", ".join(found)


def document(clusters: Sequence[ClusterView], clock: Clock) -> list[dict[str, Any]]:
    """The same for programs; ages are in seconds."""
    return [
        {
            "cluster": cluster.alias,
            "bootstrap": cluster.address,
            "error": cluster.error,
            "upstream": [_node(node, clock) for node in cluster.upstream],
        }
        for cluster in clusters
    ]


def _node(node: Upstream, clock: Clock) -> dict[str, Any]:
    return {
        "alias": node.alias,
        "path": list(node.path),
        "hops": node.hops,
        "topic": node.topic,
        "copied_seconds_ago": _seconds(node.copied_at, clock),
        "announced_seconds_ago": _seconds(node.announced_at, clock),
        "stale": node.is_stale(clock.now, clock.stale_after),
        "upstream": [_node(behind, clock) for behind in node.upstream],
    }


def _seconds(at: int | None, clock: Clock) -> float | None:
    return None if at is None else max(0, clock.now - at) / 1000
