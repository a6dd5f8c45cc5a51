"""Headers added and taken away: `InsertHeader`, `DropHeaders`."""

from __future__ import annotations

from dataclasses import dataclass

from .literals import header_bytes
from .record import ConnectRecord
from .settings import Settings


@dataclass(frozen=True, slots=True)
class InsertHeader:
    """Adds a header behind the others, also where there is one of its name."""

    header: tuple[str, bytes | None]

    @classmethod
    def parse(cls, settings: Settings) -> InsertHeader:
        literal = settings.may_be_empty("value.literal")
        return cls((settings.text("header"), header_bytes(literal)))

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        return ConnectRecord(*record[:6], [*record.headers, self.header])

    def route(self, topic: str) -> str | None:
        return topic


@dataclass(frozen=True, slots=True)
class DropHeaders:
    """Takes away every header that has one of these names."""

    names: frozenset[str]

    @classmethod
    def parse(cls, settings: Settings) -> DropHeaders:
        return cls(frozenset(settings.names("headers")))

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        headers = record.headers
        names = self.names
        if not any(key in names for key, _ in headers):
            return record
        return ConnectRecord(*record[:6], [row for row in headers if row[0] not in names])

    def route(self, topic: str) -> str | None:
        return topic
