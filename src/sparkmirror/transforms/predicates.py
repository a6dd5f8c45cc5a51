"""Which records a transform is for: `TopicNameMatches`, `HasHeaderKey`, `RecordIsTombstone`."""

from __future__ import annotations

from dataclasses import dataclass

from sparkmirror.policy.java_pattern import JavaPattern

from .record import ConnectRecord
from .settings import Settings


@dataclass(frozen=True, slots=True)
class TopicNameMatches:
    """Whether the whole name of the topic matches; the name is the one that transforms before this one gave it."""

    pattern: JavaPattern

    @classmethod
    def parse(cls, settings: Settings) -> TopicNameMatches:
        return cls(settings.pattern("pattern"))

    def test(self, record: ConnectRecord) -> bool:
        return self.pattern.matches(record.topic)

    def decide(self, topic: str | None) -> bool | None:
        return None if topic is None else self.pattern.matches(topic)


@dataclass(frozen=True, slots=True)
class HasHeaderKey:
    """Whether there is a header of this name, whatever its value."""

    name: str

    @classmethod
    def parse(cls, settings: Settings) -> HasHeaderKey:
        return cls(settings.text("name"))

    def test(self, record: ConnectRecord) -> bool:
        name = self.name
        return any(key == name for key, _ in record.headers)

    def decide(self, topic: str | None) -> bool | None:
        return None


@dataclass(frozen=True, slots=True)
class RecordIsTombstone:
    """Whether the value is null."""

    @classmethod
    def parse(cls, settings: Settings) -> RecordIsTombstone:
        return cls()

    def test(self, record: ConnectRecord) -> bool:
        return record.value is None

    def decide(self, topic: str | None) -> bool | None:
        return None
