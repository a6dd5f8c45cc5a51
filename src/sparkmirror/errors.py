"""The one family of errors: what happened, to which cluster, topic or key, and what to do about it.

    SparkMirrorError
    ├── ConfigError            a file, key or value is wrong; nothing was started
    ├── KafkaError             a cluster did not do what was asked
    │   ├── ConnectionFailed   no broker could be reached, or a connection broke (retriable)
    │   └── BrokerError        a broker answered with an error code (flags tell whether to retry)
    ├── ReplicationError       a partition cannot go on without a person
    │   ├── RecordTooLarge     one record is larger than the target topic takes
    │   ├── CorruptBatch       what the source holds is damaged
    │   ├── TopicRecreated     a topic was deleted and created again under the same name
    │   ├── NumberingLost      what the target holds cannot be matched with the source
    │   └── Superseded         a newer copy of the same flow has taken this partition over
    └── SparkError             the Spark session or job ended without being asked to

Every error crosses from a Spark executor to the driver, so each one pickles: `__reduce__` rebuilds it from its fields.
"""

from __future__ import annotations


class SparkMirrorError(Exception):
    """An error with a cause and, where a person can act, a remedy."""

    retriable = False
    exit_code = 1

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message, remedy)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message} {self.remedy}".strip()


class ConfigError(SparkMirrorError):
    """A file, a key or a value is wrong."""

    exit_code = 2


class KafkaError(SparkMirrorError):
    """A cluster did not do what was asked of it."""

    exit_code = 3


class ConnectionFailed(KafkaError):
    """No broker could be reached, or a connection broke half-way."""

    retriable = True


class BrokerError(KafkaError):
    """A broker answered with an error code."""

    def __init__(
        self, code: int, name: str, message: str, remedy: str = "", *, retriable: bool = False
    ) -> None:
        super().__init__(message, remedy)
        self.code = code
        self.name = name
        self.retriable = retriable

    def __reduce__(self) -> tuple[object, ...]:
        return _broker_error, (self.code, self.name, self.message, self.remedy, self.retriable)


def _broker_error(code: int, name: str, message: str, remedy: str, retriable: bool) -> BrokerError:
    return BrokerError(code, name, message, remedy, retriable=retriable)


class ReplicationError(SparkMirrorError):
    """A partition cannot go on without a person."""

    exit_code = 1


class RecordTooLarge(ReplicationError):
    """One record is larger than the target topic takes."""


class CorruptBatch(ReplicationError):
    """A batch in a log is damaged: its checksum is wrong, or its records cannot be read."""


class TopicRecreated(ReplicationError):
    """A topic was deleted and created again under the same name."""


class NumberingLost(ReplicationError):
    """What the target holds cannot be matched with the source."""


class Superseded(ReplicationError):
    """A newer copy of the same flow has taken this partition over."""


class SparkError(SparkMirrorError):
    """The Spark session or job ended without being asked to."""

    retriable = True
