"""The one family of errors: what happened, to which cluster, topic or key, and what to do about it.

    SparkMirrorError
    ├── ConfigError            a file, key or value is wrong; nothing was started
    │   └── QueryRefused       Spark does not understand a query, or it cannot be run on a stream of records
    ├── KafkaError             a cluster did not do what was asked
    │   ├── ConnectionFailed   no broker could be reached, or a connection broke (retriable)
    │   ├── AccessFailed       we were not let in: certificates, passwords, tokens (a person can mend it while we run)
    │   └── BrokerError        a broker answered with an error code (flags tell whether to retry)
    │       └── Unanswered     a broker offers an API and did not answer it
    ├── ReplicationError       a partition cannot go on without a person
    │   ├── RecordTooLarge     one record is larger than the target topic takes
    │   ├── CorruptBatch       what the source holds is damaged
    │   │   └── OpensTooLarge  a batch is far larger when it is decompressed
    │   ├── TopicRecreated     a topic was deleted and created again under the same name
    │   ├── NumberingLost      what the target holds cannot be matched with the source
    │   ├── NotIdempotent      a target does not keep the numbers by which it would tell which records it has
    │   ├── Superseded         a newer copy of the same flow has taken this partition over
    │   └── QueryFailed        a query does not get through with its records
    │       └── QueryStuck     and could not be ended
    ├── SparkError             the Spark session or job ended without being asked to
    │   └── NoSlot             a Spark task waits for a slot
    └── ConnectError           a Connect worker cannot do what was asked of it (HTTP 500)
        ├── BadRequest         400: the request or the connector's config is wrong
        ├── Forbidden          403: switched off, or signed with another key
        ├── NotFound           404: no such connector, task, logger or plugin
        ├── Conflict           409: it exists already, or a rebalance is under way
        ├── NotHere            409 unless it can be forwarded: another worker has to decide this
        └── Unavailable        503: not ready yet

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


class QueryRefused(ConfigError):
    """Spark does not understand a query, or it cannot be run record by record."""


class KafkaError(SparkMirrorError):
    """A cluster did not do what was asked of it."""

    exit_code = 3


class ConnectionFailed(KafkaError):
    """No broker could be reached, or a connection broke half-way."""

    retriable = True


class AccessFailed(KafkaError):
    """A broker was reached and did not let us in, or was not who it should be.

    Not retriable, since trying often locks accounts: whoever waits for a person (a failed task, a failed connector) tries again
    at long intervals, and goes on when it was mended.
    """


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


class Unanswered(BrokerError):
    """A broker offers an API and did not answer it: it lacks it after all, or is slow."""

    def __reduce__(self) -> tuple[object, ...]:
        return Unanswered, (self.code, self.name, self.message, self.remedy)


def _broker_error(code: int, name: str, message: str, remedy: str, retriable: bool) -> BrokerError:
    return BrokerError(code, name, message, remedy, retriable=retriable)


class ReplicationError(SparkMirrorError):
    """A partition cannot go on without a person."""

    exit_code = 1


class RecordTooLarge(ReplicationError):
    """One record is larger than the target topic takes."""


class CorruptBatch(ReplicationError):
    """A batch in a log is damaged: its checksum is wrong, or its records cannot be read."""


class OpensTooLarge(CorruptBatch):
    """A batch is larger when it is decompressed than this process opens: it may have been made to fill its memory."""


class TopicRecreated(ReplicationError):
    """A topic was deleted and created again under the same name."""


class NumberingLost(ReplicationError):
    """What the target holds cannot be matched with the source."""


class NotIdempotent(ReplicationError):
    """A target does not keep the numbers of records, by which it would tell which ones it has."""


class Superseded(ReplicationError):
    """A newer copy of the same flow has taken this partition over."""


class QueryFailed(ReplicationError):
    """A query raises on a record, or does not get through with its records in time."""


class QueryStuck(QueryFailed):
    """A query does not get through with its records, and could not be ended: each try takes more of the processor."""


class SparkError(SparkMirrorError):
    """The Spark session or job ended without being asked to."""

    retriable = True


class NoSlot(SparkError):
    """A Spark task waits for a slot. It begins by itself when it gets one: nothing is to be tried again, or given up."""


class ConnectError(SparkMirrorError):
    """A Connect worker cannot do what was asked; `status` is the HTTP status that Connect answers with."""

    status = 500


class BadRequest(ConnectError):
    """The request, or the config of a connector, is wrong."""

    status = 400


class Forbidden(ConnectError):
    """It is switched off, or it was signed with another key."""

    status = 403


class NotFound(ConnectError):
    """No such connector, task, logger or plugin."""

    status = 404


class Conflict(ConnectError):
    """It exists already, or a rebalance is under way."""

    status = 409


class NotHere(ConnectError):
    """Another worker has to decide this: forward it to `url` (None while nobody knows who that is)."""

    status = 409

    def __init__(self, message: str, remedy: str = "", url: str | None = None) -> None:
        super().__init__(message, remedy)
        self.url = url

    def __reduce__(self) -> tuple[object, ...]:
        return NotHere, (self.message, self.remedy, self.url)


class Unavailable(ConnectError):
    """Not ready yet."""

    status = 503
