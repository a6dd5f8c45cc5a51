"""Who coordinates which group: groups come in, each is asked of its coordinator, answers and errors go out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from sparkmirror.errors import BrokerError, ConnectionFailed, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.kafka.api_versions import FIND_COORDINATOR
from sparkmirror.kafka.cluster import Cluster, back_off
from sparkmirror.kafka.denials import Access, Operation, Resource, needs
from sparkmirror.kafka.request_parts import Bound, cut

_MOVED = (
    messages.COORDINATOR_LOAD_IN_PROGRESS,
    messages.COORDINATOR_NOT_AVAILABLE,
    messages.NOT_COORDINATOR,
)
_LOOKUP = Bound(250)
_MANY_KEYS = 4  # the version from which on one request may ask for several groups
_GROUP_KEY = 0
_PATIENCE = 5.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answers(Generic[T]):
    """What came of each group: an answer, or the error it failed with."""

    found: dict[str, T]
    failed: dict[str, KafkaError]


class Coordinators:
    """Asks the coordinators of groups on one cluster.

    Invariants: `_nodes` are hints: a broker that no longer coordinates a group, or does not answer, is looked up anew and the
    group is asked for again for a few seconds; a group that fails never takes others with it.
    """

    def __init__(self, cluster: Cluster, right: Operation = "Describe") -> None:
        self._cluster = cluster
        self._right = right
        self._nodes: dict[str, int] = {}

    def each(
        self,
        groups: Iterable[str],
        most: int,
        call: Callable[[int, Sequence[str]], Mapping[str, T | KafkaError]],
    ) -> Answers[T]:
        """Ask each group's coordinator, `most` groups at a time, and again those that were not the coordinator (yet)."""
        answers: Answers[T] = Answers({}, {})
        left = list(dict.fromkeys(groups))
        deadline = time.monotonic() + _PATIENCE
        settings = self._cluster.settings
        for wait in back_off(settings.retry_backoff, settings.retry_backoff_max):
            again: list[str] = []
            for group, answer in self._round(left, most, call).items():
                if not isinstance(answer, KafkaError):
                    answers.found[group] = answer
                    answers.failed.pop(group, None)
                    continue
                answers.failed[group] = answer
                if _has_moved(answer):
                    self._nodes.pop(group, None)
                    again.append(group)
            left = again
            if not left or time.monotonic() + wait > deadline:
                break
            time.sleep(wait)
        return answers

    def _round(
        self,
        groups: Sequence[str],
        most: int,
        call: Callable[[int, Sequence[str]], Mapping[str, T | KafkaError]],
    ) -> dict[str, T | KafkaError]:
        answers: dict[str, T | KafkaError] = dict(self._look_up(groups))
        nodes: dict[int, list[str]] = {}
        for group in groups:
            if group not in answers:
                nodes.setdefault(self._nodes[group], []).append(group)
        for node, its in nodes.items():
            try:
                for part in cut(its, Bound(most)):
                    answers |= call(node, part)
            except KafkaError as error:
                # Its other groups would wait for the same time-out: they are asked in the next round.
                answers |= {group: error for group in its if group not in answers}
        return answers

    def _look_up(self, groups: Sequence[str]) -> dict[str, KafkaError]:
        """Learn the coordinators that are not known; the groups for which that failed."""
        unknown = [group for group in groups if group not in self._nodes]
        failed: dict[str, KafkaError] = {}
        for part in cut(unknown, _LOOKUP):
            try:
                found = self._find(part)
                if any(not code and node not in self._cluster.brokers for _, node, code in found):
                    self._cluster.refresh([])
            except KafkaError as error:
                left = [group for group in unknown if group not in self._nodes]
                return dict.fromkeys(left, error) | failed
            for group, node, code in found:
                if code == messages.NONE:
                    self._nodes[group] = node
                else:
                    failed[group] = group_error(
                        self._cluster,
                        code,
                        f"Finding the coordinator of group {group}",
                        self.access(self._right, group),
                    )
        return failed

    def access(self, operation: Operation, name: str, resource: Resource = "group") -> Access:
        """What asking a coordinator needs."""
        return needs(operation, resource, name, self._cluster.settings.security)

    def _find(self, groups: Sequence[str]) -> list[tuple[str, int, int]]:
        """Group, coordinator and error code of each."""
        connection = self._cluster.any_connection()
        request = messages.FindCoordinatorRequest
        if (FIND_COORDINATOR.version(connection.versions) or 0) >= _MANY_KEYS:
            answer = connection.call(request(key_type=_GROUP_KEY, coordinator_keys=list(groups)))
            return [(c.key, c.node_id, c.error_code) for c in answer.coordinators]
        found = []
        for group in groups:
            answer = connection.call(request(key=group, key_type=_GROUP_KEY))
            found.append((group, answer.node_id, answer.error_code))
        return found


def group_error(cluster: Cluster, code: int, what: str, access: Access) -> BrokerError:
    """A broker's error about a group, with what to do about it."""
    return messages.broker_error(code, f"{what} on {cluster.settings}", access=access)


def _has_moved(error: KafkaError) -> bool:
    """Whether to look the coordinator up again; other errors are the caller's to judge."""
    return isinstance(error, ConnectionFailed) or (
        isinstance(error, BrokerError) and error.code in _MOVED
    )
