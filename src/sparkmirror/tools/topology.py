"""The flows into a cluster, by its heartbeats topics: topics and their last heartbeats in, a tree out.

Two things tell of a flow. A heartbeats topic that was copied (`A.heartbeats`) shows that the flow from `A` copies, and how fresh
its newest record is. A heartbeat in a cluster's own `heartbeats` was written by the heartbeat connector of a flow into that
cluster: it *announces* the flow, which need not copy anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sparkmirror.formats.mirror import Heartbeat

Path = tuple[str, ...]
MayCopy = Callable[[str, str | None], bool]
"""Whether the flow from the first cluster to the second may copy topics."""


def _anything(source: str, target: str | None) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class HeartbeatsTopic:
    """A heartbeats topic: the clusters that it came through, the nearest first (none: the cluster's own), and what it says."""

    name: str
    path: Path
    beats: tuple[Heartbeat, ...]


@dataclass(frozen=True, slots=True)
class Upstream:
    """A cluster that one or several flows lead from. Times are those of heartbeats, in milliseconds since 1970."""

    alias: str
    path: Path
    topic: str | None
    """The copied heartbeats topic; None if the flow is only announced, or known from clusters behind it."""
    copied_at: int | None
    announced_at: int | None
    upstream: tuple[Upstream, ...] = ()

    @property
    def hops(self) -> int:
        """As `replication_hops` counts them by this way: -1 where no heartbeats arrive."""
        return len(self.path) if self.topic is not None or self.has_copies_behind else -1

    @property
    def has_copies_behind(self) -> bool:
        return any(node.topic is not None or node.has_copies_behind for node in self.upstream)

    def is_stale(self, now: int, most: int) -> bool:
        """Whether the best sign of life there is, is older than `most` milliseconds."""
        best = self.announced_at if self.topic is None else self.copied_at
        return not (best is None and self.has_copies_behind) and is_late(best, now, most)


def is_late(at: int | None, now: int, most: int) -> bool:
    return at is None or now - at > most


def own_alias(topics: Iterable[HeartbeatsTopic]) -> str | None:
    """What the flows call the cluster that has these topics; None if they do not say, or disagree."""
    names = {beat.target_alias for topic in topics if not topic.path for beat in topic.beats}
    return names.pop() if len(names) == 1 else None


def upstream_tree(
    alias: str | None, topics: Sequence[HeartbeatsTopic], may_copy: MayCopy = _anything
) -> tuple[Upstream, ...]:
    """The clusters upstream of the one called `alias` that has these topics, each below the one that it is copied to.

    A flow that is only announced is left out if it is known not to copy: in dedicated mode all pairs of clusters send heartbeats.
    """
    copied = {topic.path: topic for topic in topics if topic.path}
    announced = _announced(alias, topics)
    seen = {path[:length] for path in copied for length in range(1, len(path) + 1)}
    known = seen | {path for path in announced if may_copy(path[-1], (alias, *path)[-2])}

    def below(parent: Path) -> tuple[Upstream, ...]:
        paths = sorted(path for path in known if path[:-1] == parent)
        return tuple(node(path) for path in paths)

    def node(path: Path) -> Upstream:
        topic = copied.get(path)
        return Upstream(
            path[-1],
            path,
            None if topic is None else topic.name,
            None if topic is None else _newest(topic),
            announced.get(path),
            below(path),
        )

    return below(())


def _announced(alias: str | None, topics: Iterable[HeartbeatsTopic]) -> dict[Path, int]:
    """When each flow was last announced, by its way from here."""
    found: dict[Path, int] = {}
    for topic in topics:
        for beat in topic.beats:
            path = (*topic.path, beat.source_alias)
            # The way back of a pair that copies both ways is part of the other cluster's tree.
            if beat.source_alias != alias and beat.source_alias not in topic.path:
                found[path] = max(beat.timestamp, found.get(path, beat.timestamp))
    return found


def _newest(topic: HeartbeatsTopic) -> int | None:
    return max((beat.timestamp for beat in topic.beats), default=None)
