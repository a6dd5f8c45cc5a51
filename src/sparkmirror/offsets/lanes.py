"""Many requests to one broker, a few at a time: names in, a request for each, what came of each out.

A broker takes up the next request of a connection when it has answered the one before, and a commit is answered when it is in the
log. So several connections are several commits on their way, and never more than that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from sparkmirror.errors import BrokerError, KafkaError
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection

T = TypeVar("T")
_MOST_LANES = 8
_WORTH_A_LANE = 25


def in_lanes(
    cluster: Cluster,
    node: int,
    names: Sequence[str],
    ask: Callable[[Connection, str], T | BrokerError],
) -> dict[str, T | KafkaError]:
    """Ask one request for each name; where a connection breaks, so have those that were to go through it."""
    count = min(_MOST_LANES, 1 + len(names) // _WORTH_A_LANE)
    if count == 1:
        return _one_by_one(lambda: cluster.connection(node), names, ask)

    def lane(number: int) -> dict[str, T | KafkaError]:
        own: list[Connection] = []

        def dial() -> Connection:
            own.append(cluster.dial(node))
            return own[0]

        try:
            return _one_by_one(dial, names[number::count], ask)
        finally:
            for connection in own:
                connection.close()

    answers: dict[str, T | KafkaError] = {}
    with ThreadPoolExecutor(count, thread_name_prefix="group-offsets") as lanes:
        for part in lanes.map(lane, range(count)):
            answers |= part
    return answers


def _one_by_one(
    connect: Callable[[], Connection],
    names: Sequence[str],
    ask: Callable[[Connection, str], T | BrokerError],
) -> dict[str, T | KafkaError]:
    answers: dict[str, T | KafkaError] = {}
    try:
        connection = connect()
        for name in names:
            answers[name] = ask(connection, name)
    except KafkaError as error:
        # The others would wait for the same time-out.
        answers |= {name: error for name in names if name not in answers}
    return answers
