"""The seam between checkpoints and whoever knows what an offset is downstream."""

from __future__ import annotations

from typing import Protocol


class Translator(Protocol):
    """Translates offsets of source partitions. Used by one thread; errors are `KafkaError`s, retriable if they may pass."""

    @property
    def is_ready(self) -> bool:
        """Whether all that was there at the beginning has been read; nothing is translated before."""

    def follow(self, wait: float) -> None:
        """Take in what was written meanwhile; where there is nothing, wait for it up to `wait` seconds."""

    def translate(self, topic: str, partition: int, offset: int) -> int | None:
        """The downstream offset; negative or None if it cannot be told (too old, or nothing is known of the partition)."""
