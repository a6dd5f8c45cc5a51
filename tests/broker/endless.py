"""Records all the time, to several topics, until told to stop: load for tests that do things to workers meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from confluent_kafka import Producer

_EACH = 20
_FLUSH_S = 120.0


class EndlessLoad:
    """Writes about `rate` numbered records a second to each topic, idempotently, within a `with` block.

    Invariant: when the block is left, all records are acknowledged, and `sent` says how many each topic got.
    """

    def __init__(
        self, bootstrap: str, topics: Sequence[str], partitions: int, rate: int = 400
    ) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 300_000,
            }
        )
        self._topics = list(topics)
        self._partitions = partitions
        self._pause = _EACH / rate
        self._over = threading.Event()
        self.sent = 0
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        left = self._producer.flush(_FLUSH_S)
        if error is None:
            assert not self.failed, self.failed[:3]
            assert left == 0, f"{left} records were not acknowledged"

    def _run(self) -> None:
        while not self._over.wait(self._pause):
            for number in range(self.sent, self.sent + _EACH):
                for topic in self._topics:
                    self._send(topic, number)
            self.sent += _EACH
            self._producer.poll(0)

    def _send(self, topic: str, number: int) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    key=b"%d" % number,
                    value=b"%s %d " % (topic.encode(), number) + b"v" * (number % 300),
                    partition=number % self._partitions,
                    headers=[("n", b"%d" % number)],
                    on_delivery=self._delivered,
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))
