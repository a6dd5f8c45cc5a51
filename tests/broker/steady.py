"""A producer that goes on, whatever happens to single brokers."""

from __future__ import annotations

import threading
import time

from confluent_kafka import Producer


class SteadyProducer:
    """Writes numbered records at a steady pace, idempotently, in a thread of its own."""

    def __init__(
        self, bootstrap: str, topic: str, count: int, partitions: int, seconds: float
    ) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "message.timeout.ms": 300_000,
            }
        )
        self._topic = topic
        self._count = count
        self._partitions = partitions
        self._pause = seconds * 100 / count
        self.failed: list[str] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for i in range(self._count):
            self._produce(i)
            if i % 100 == 0:
                self._producer.poll(0)
                time.sleep(self._pause)
        self._producer.flush(300)

    def _produce(self, i: int) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    key=b"%d" % i,
                    value=b"%d " % i + b"v" * (i % 300),
                    partition=i % self._partitions,
                    headers=[("n", b"%d" % i), ("null", None)],
                    on_delivery=self._delivered,
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(str(error))

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()
