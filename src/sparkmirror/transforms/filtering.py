"""Records left out: `Filter`."""

from __future__ import annotations

from dataclasses import dataclass

from .record import ConnectRecord
from .settings import Settings


@dataclass(frozen=True, slots=True)
class Filter:
    """Drops every record that it gets: its predicate says which ones those are."""

    @classmethod
    def parse(cls, settings: Settings) -> Filter:
        return cls()

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        return None

    def route(self, topic: str) -> str | None:
        return topic
