"""The transforms of a connector, in order: its config in, a chain out; a record in, the record as it goes on (or none) out.

A chain is looked at once per topic (`on`): what the topic's name alone decides is decided there, and only the rest is done record
by record. A topic that no transform touches is copied as if there were none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from sparkmirror.errors import ConfigError
from sparkmirror.formats import java_json

from .filtering import Filter
from .headers import DropHeaders, InsertHeader
from .predicates import HasHeaderKey, RecordIsTombstone, TopicNameMatches
from .record import ConnectRecord, Predicate, Transformation
from .routers import RegexRouter, TimestampRouter
from .settings import Settings, listed

T = TypeVar("T")
_TRANSFORMS_PACKAGE = "org.apache.kafka.connect.transforms."
_PREDICATES_PACKAGE = f"{_TRANSFORMS_PACKAGE}predicates."
_TRANSFORMS: dict[str, Callable[[Settings], Transformation]] = {
    "DropHeaders": DropHeaders.parse,
    "Filter": Filter.parse,
    "InsertHeader": InsertHeader.parse,
    "RegexRouter": RegexRouter.parse,
    "TimestampRouter": TimestampRouter.parse,
}
_PREDICATES: dict[str, Callable[[Settings], Predicate]] = {
    "HasHeaderKey": HasHeaderKey.parse,
    "RecordIsTombstone": RecordIsTombstone.parse,
    "TopicNameMatches": TopicNameMatches.parse,
}
# Kafka's other transforms look into records, which for MM2 are nothing but bytes: there, too, they fail at the first record.
_STRUCTURED = frozenset(
    {
        "Cast",
        "ExtractField",
        "Flatten",
        "HeaderFrom",
        "HoistField",
        "InsertField",
        "MaskField",
        "ReplaceField",
        "SetSchemaMetadata",
        "TimestampConverter",
        "ValueToKey",
    }
)


@dataclass(frozen=True, slots=True)
class Step:
    """One transform, and for which records it is."""

    alias: str
    transformation: Transformation
    predicate: Predicate | None = None
    negate: bool = False

    def decide(self, topic: str | None) -> bool | None:
        """Whether the transform is for every record of `topic` (True), for none, or for some (None)."""
        if self.predicate is None:
            return True
        answer = self.predicate.decide(topic)
        return None if answer is None else answer is not self.negate


@dataclass(frozen=True, slots=True)
class TopicChain:
    """What a chain does with the records of one topic."""

    topic: str
    """The name under which records enter the steps."""
    steps: tuple[Step, ...]
    """What is to be done record by record."""
    target: str | None
    """The topic that all records go to that are not dropped; None if that is up to each record."""

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """The record as it goes on; `record.topic` must be `topic`."""
        for step in self.steps:
            predicate = step.predicate
            if predicate is None or predicate.test(record) is not step.negate:
                changed = step.transformation.apply(record)
                if changed is None:
                    return None
                record = changed
        return record


@dataclass(frozen=True, slots=True)
class TransformChain:
    """All transforms of a connector."""

    steps: tuple[Step, ...]
    text: str
    """The settings it was made of, as JSON; `read` makes the same chain of it."""

    @classmethod
    def parse(cls, props: Mapping[str, str]) -> TransformChain | None:
        """The chain of a connector's config; None without `transforms`. ConfigError for what is wrong or cannot be done here."""
        aliases = _aliases(props, "transforms")
        if not aliases:
            return None
        predicates = {
            alias: _made(props, f"predicates.{alias}.", _PREDICATES, _PREDICATES_PACKAGE)
            for alias in _aliases(props, "predicates")
        }
        steps = tuple(_step(props, alias, predicates) for alias in aliases)
        own = {
            key: value
            for key, value in props.items()
            if key in ("transforms", "predicates") or key.startswith(("transforms.", "predicates."))
        }
        return cls(steps, json.dumps(own, sort_keys=True, separators=(",", ":")))

    @classmethod
    def read(cls, text: str) -> TransformChain | None:
        """The chain whose `text` this is; ConfigError if it cannot be read."""
        try:
            props = java_json.decode(text)
        except ValueError as error:
            raise ConfigError(f"A recorded chain of transforms cannot be read: {error}.") from None
        return cls.parse({str(key): str(value) for key, value in dict(props).items()})

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """The record as it goes on; None if it was dropped."""
        return TopicChain(record.topic, self.steps, None).apply(record)

    def target(self, topic: str) -> str | None:
        """The topic that all records of a topic go to, to be there before they come; None if each record names its own."""
        chain = self.on(topic)
        return topic if chain is None else chain.target

    def on(self, topic: str) -> TopicChain | None:
        """What is done with the records of a topic; None if nothing is."""
        left: list[Step] = []
        entry, current = topic, topic
        for index, step in enumerate(self.steps):
            answer = step.decide(current)
            if answer is False:
                continue
            routed = step.transformation.route(current)
            if routed is None or (answer is None and routed != current):
                # From here on the name is up to the record.
                return TopicChain(current, (*left, *self.steps[index:]), None)
            if isinstance(step.transformation, RegexRouter | TimestampRouter):
                entry = current = routed
            else:
                left.append(replace(step, predicate=None, negate=False) if answer else step)
        return TopicChain(entry, tuple(left), current) if left or current != topic else None


def _aliases(props: Mapping[str, str], key: str) -> tuple[str, ...]:
    found = listed(props.get(key, ""))
    if len(set(found)) != len(found) or "" in found:
        raise ConfigError(
            f"{key}={props[key]} names one twice, or has an empty name.", f"Correct {key}."
        )
    return found


def _made(
    props: Mapping[str, str],
    prefix: str,
    known: Mapping[str, Callable[[Settings], T]],
    package: str,
) -> T:
    name = Settings(props, prefix).text("type").strip()
    simple = name.removeprefix(package)
    if simple in known:
        return known[simple](Settings(props, prefix))
    if simple.split("$")[0] in _STRUCTURED and package == _TRANSFORMS_PACKAGE:
        raise ConfigError(
            f"{prefix}type={name} works on structured records; those of MirrorMaker are bytes.",
            f"Remove it. What works on bytes: {', '.join(sorted(known))}.",
        )
    raise ConfigError(
        f"{prefix}type={name} is not known here.",
        f"Known are {', '.join(sorted(known))}, with or without {package} before.",
    )


def _step(props: Mapping[str, str], alias: str, predicates: Mapping[str, Predicate]) -> Step:
    prefix = f"transforms.{alias}."
    transformation = _made(props, prefix, _TRANSFORMS, _TRANSFORMS_PACKAGE)
    wanted = props.get(f"{prefix}predicate", "").strip()
    negate = Settings(props, prefix).flag("negate")
    if not wanted:
        if f"{prefix}negate" in props:
            raise ConfigError(
                f"{prefix}negate is set, but there is no {prefix}predicate to negate.",
                f"Set {prefix}predicate, or remove {prefix}negate.",
            )
        return Step(alias, transformation)
    if wanted not in predicates:
        raise ConfigError(
            f"{prefix}predicate={wanted} is not one of predicates ({', '.join(predicates) or 'none'}).",
            f"Add {wanted} to predicates and set predicates.{wanted}.type.",
        )
    return Step(alias, transformation, predicates[wanted], negate)
