"""Which topic properties a cluster takes: properties of topics in, sent without those that the cluster does not know.

Versions of Kafka know different properties: 4.0 dropped message.format.version, 3.6 brought those of tiered storage. No request
lists what a cluster would take, but its refusal names the property, in the same words from 2.4 to 4.3. So the property is left
out, and the request sent again; from then on it is left out at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import messages

Properties = Mapping[str, str | None]
"""Values by name; None takes a property back."""
Send = Callable[[Mapping[str, Properties]], Mapping[str, BrokerError]]
"""Sends properties of topics; gives the topics that were refused."""

FORMAT = "message.format.version"
_NUMBERED = (0, 11)
"""The first format that has a place for producer ids and sequence numbers."""
_UNKNOWN_NAME = re.compile(r"\(Unknown topic config name: (?P<name>[^\s()]+)\)\.$")
_UNKNOWN_FORMAT = re.compile(
    rf"Invalid value (?P<value>\S+) for configuration (?P<name>{re.escape(FORMAT)}): "
)
_VERSION = re.compile(r"(?<!\d)(\d++)\.(\d++)\b")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A property that a topic does not get."""

    topic: str
    name: str
    why: str


class PropertySupport:
    """What one cluster is known not to take.

    Invariant: what was refused once is not sent again, for any topic.
    """

    def __init__(self) -> None:
        self._refused: set[tuple[str, str | None]] = set()
        """Names, each with the value that was refused, or None for all of them."""
        self._told: set[LeftOut] = set()
        self._news: list[LeftOut] = []

    def objection(self, name: str, value: str | None) -> str:
        """Why a property is not sent; empty if it is."""
        if value is None:
            return ""
        if (name, None) in self._refused:
            return "the cluster does not know this property"
        if (name, value) in self._refused:
            return f"the cluster does not know the version {value}"
        if name == FORMAT and is_unnumbered(value):
            return f"copying exactly once needs 0.11 or later, and not {value}"
        return ""

    def send(self, wanted: Mapping[str, Properties], send: Send) -> dict[str, BrokerError]:
        """Send the properties of topics, without those that the cluster does not know; topics that it refuses all the same."""
        failed: dict[str, BrokerError] = {}
        left = dict(wanted)
        while left:
            sent = {topic: self._fitting(properties) for topic, properties in left.items()}
            refused = send(sent)
            again = {t: left[t] for t, error in refused.items() if self._learn(error, sent[t])}
            failed |= {topic: error for topic, error in refused.items() if topic not in again}
            self._note({topic: left[topic] for topic in left if topic not in again})
            left = again
        return failed

    def news(self) -> list[LeftOut]:
        """What was left out since this was asked last; of each topic once."""
        found, self._news = self._news, []
        return found

    def _fitting(self, properties: Properties) -> dict[str, str | None]:
        return {
            name: value for name, value in properties.items() if not self.objection(name, value)
        }

    def _learn(self, error: BrokerError, sent: Properties) -> bool:
        """Whether a refusal names a property that was sent, which is left out from now on."""
        refused = refused_property(error)
        if refused is None or sent.get(refused[0]) is None:
            return False
        name, value = refused
        if value not in (None, sent[name]):
            return False
        self._refused.add(refused)
        return True

    def _note(self, sent: Mapping[str, Properties]) -> None:
        for topic, properties in sent.items():
            for name, value in properties.items():
                left_out = LeftOut(topic, name, self.objection(name, value))
                if left_out.why and left_out not in self._told:
                    self._told.add(left_out)
                    self._news.append(left_out)


def refused_property(error: BrokerError) -> tuple[str, str | None] | None:
    """The property that a cluster says it does not know, with the value if it knows others; None if it says something else."""
    if error.code not in (messages.INVALID_CONFIG, messages.INVALID_REQUEST):
        return None
    if found := _UNKNOWN_NAME.search(error.message):
        return found["name"], None
    if found := _UNKNOWN_FORMAT.search(error.message):
        return found["name"], found["value"]
    return None


def is_unnumbered(version: str) -> bool:
    """Whether records of a message.format.version have no sequence numbers, so that idempotent writes are refused."""
    found = _VERSION.match(version)
    return found is not None and (int(found[1]), int(found[2])) < _NUMBERED
