"""A small shop for the demo: a rate comes in, JSON events in three topics go out."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparkmirror.errors import KafkaError
from sparkmirror.kafka import admin, log
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.records import NewRecord, encode
from sparkmirror.kafka.settings import ClientSettings

PARTITIONS: Mapping[str, int] = {"shop.clicks": 12, "shop.orders": 8, "shop.payments": 4}
_SHARE: Mapping[str, float] = {"shop.clicks": 0.7, "shop.orders": 0.2, "shop.payments": 0.1}
_TICK_S = 0.1
_PATIENCE_S = 30.0
_LZ4 = 3


def create_shop(cluster: Cluster) -> None:
    """Create the shop's topics and wait until each partition has a leader."""
    wanted = [NewTopic(name, count, 1, {}) for name, count in PARTITIONS.items()]
    cluster.refresh([])
    for error in admin.create_topics(cluster, wanted).values():
        if error is not None:
            raise error

    def led() -> None:
        cluster.refresh(list(PARTITIONS))
        for name, count in PARTITIONS.items():
            for partition in range(count):
                cluster.leader(name, partition)

    cluster.retrying(led, time.monotonic() + _PATIENCE_S)


@dataclass(frozen=True, slots=True)
class _Kind:
    """One topic's events: how to make the body of one."""

    topic: str
    body: Callable[[random.Random, int], dict[str, object]]


def _click(dice: random.Random, number: int) -> dict[str, object]:
    return {
        "click": number,
        "user": dice.randrange(50_000),
        "page": dice.choice(("/", "/search", "/cart", "/item", "/help")),
        "ms": dice.randrange(5, 900),
    }


def _order(dice: random.Random, number: int) -> dict[str, object]:
    items = [
        {"sku": f"sku-{dice.randrange(2_000):04}", "count": dice.randrange(1, 5)}
        for _ in range(dice.randrange(1, 4))
    ]
    return {"order": number, "user": dice.randrange(50_000), "items": items, "currency": "EUR"}


def _payment(dice: random.Random, number: int) -> dict[str, object]:
    return {
        "payment": number,
        "order": dice.randrange(max(number, 1)),
        "cents": dice.randrange(100, 90_000),
        "by": dice.choice(("card", "invoice", "transfer")),
    }


_KINDS = (
    _Kind("shop.clicks", _click),
    _Kind("shop.orders", _order),
    _Kind("shop.payments", _payment),
)


class Shop:
    """Produces events in a thread of its own until it is closed.

    Invariants: `sent` counts acknowledged records only; `error` is set once, when the thread has
    given up.
    """

    def __init__(self, settings: ClientSettings, records_per_s: int) -> None:
        self.sent = 0
        self.error: KafkaError | None = None
        self._cluster = Cluster(settings)
        self._rate = records_per_s
        self._dice = random.Random()  # noqa: S311 - test data
        self._numbers = dict.fromkeys(PARTITIONS, 0)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop producing; everything that was counted has been acknowledged."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()
        self._cluster.close()

    def _run(self) -> None:
        try:
            self._cluster.refresh(list(PARTITIONS))
            started, made = time.monotonic(), 0
            while not self._closing.wait(_TICK_S):
                total = int((time.monotonic() - started) * self._rate)
                # After a stall, go on at the same rate: a burst would only measure this producer.
                due, made = min(total - made, self._rate), total
                for kind in _KINDS:
                    self._produce(kind, int(due * _SHARE[kind.topic]))
        except KafkaError as error:
            self.error = error

    def _produce(self, kind: _Kind, count: int) -> None:
        spread: dict[int, list[NewRecord]] = {}
        for _ in range(count):
            number = self._numbers[kind.topic]
            self._numbers[kind.topic] = number + 1
            partition = number % PARTITIONS[kind.topic]
            spread.setdefault(partition, []).append(self._event(kind, number))
        for partition, events in spread.items():
            self._cluster.retrying(
                lambda: self._append(kind.topic, partition, events),  # noqa: B023 - called at once
                time.monotonic() + _PATIENCE_S,
            )
            self.sent += len(events)

    def _append(self, topic: str, partition: int, events: list[NewRecord]) -> None:
        log.append(self._cluster, topic, partition, encode(events, _LZ4))

    def _event(self, kind: _Kind, number: int) -> NewRecord:
        body = json.dumps(kind.body(self._dice, number), separators=(",", ":")).encode()
        headers: list[tuple[str, bytes | None]] = [("shop", b"demo"), ("trace", b"%016x" % number)]
        return NewRecord(0, int(time.time() * 1000), b"user-%d" % (number % 997), body, headers)
