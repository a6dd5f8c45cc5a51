"""Which properties are sent to a cluster that does not know all of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import messages
from sparkmirror.kafka.property_support import (
    LeftOut,
    Properties,
    PropertySupport,
    is_unnumbered,
    refused_property,
)

NAMES = st.sampled_from(["retention.ms", "new.one", "new.two", "new.three", "segment.bytes"])
VALUES = st.sampled_from(["1", "2", None])
TOPICS = st.dictionaries(
    st.sampled_from(["orders", "unknown", "prices"]), st.dictionaries(NAMES, VALUES)
)
FORMAT = "message.format.version"


def refusal(topic: str, detail: str, code: int = messages.INVALID_CONFIG) -> BrokerError:
    return messages.broker_error(code, f"Creating topic {topic} on cluster B (b:1)", detail)


class Target:
    """Knows some properties, and names one that it does not know when it refuses a topic."""

    def __init__(self, known: set[str]) -> None:
        self.known = known
        self.topics: dict[str, Properties] = {}
        self.requests = 0

    def take(self, wanted: Mapping[str, Properties]) -> dict[str, BrokerError]:
        self.requests += 1
        refused = {}
        for topic, properties in wanted.items():
            unknown = [n for n, v in properties.items() if v is not None and n not in self.known]
            if unknown:
                refused[topic] = refusal(topic, f"Unknown topic config name: {unknown[-1]}")
            else:
                self.topics[topic] = properties
        return refused


@given(TOPICS, st.sets(NAMES))
def test_a_topic_gets_what_the_cluster_knows_and_the_rest_is_told_once(
    wanted: dict[str, dict[str, str | None]], known: set[str]
) -> None:
    target, support = Target(known), PropertySupport()
    assert support.send(wanted, target.take) == {}
    assert target.topics == {
        topic: {n: v for n, v in properties.items() if v is None or n in known}
        for topic, properties in wanted.items()
    }
    assert {(one.topic, one.name) for one in support.news()} == {
        (topic, name)
        for topic, properties in wanted.items()
        for name, value in properties.items()
        if value is not None and name not in known
    }
    before = target.requests
    support.send(wanted, target.take)
    assert target.requests <= before + 1, "what is known to be unknown is not tried again"
    assert support.news() == []


def test_refusals_for_other_reasons_are_given_back() -> None:
    support = PropertySupport()
    error = refusal("orders", "conflict topic config setting min.compaction.lag.ms (2) > (1)")
    denied = refusal("prices", "no", messages.POLICY_VIOLATION)
    refused = {"orders": error, "prices": denied}
    wanted: dict[str, Properties] = {"orders": {"min.compaction.lag.ms": "2"}, "prices": {}}
    assert support.send(wanted, lambda _: refused) == refused
    assert support.news() == []


def test_a_cluster_that_names_what_was_not_sent_is_not_asked_for_ever() -> None:
    error = refusal("orders", "Unknown topic config name: another")
    support = PropertySupport()
    assert support.send({"orders": {"retention.ms": "1"}}, lambda _: {"orders": error}) == {
        "orders": error
    }


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        ("Unknown topic config name: message.format.version", (FORMAT, None)),
        (
            f"Invalid value 2.8-IV1 for configuration {FORMAT}: Version `2.8-IV1` is not a valid version",
            (FORMAT, "2.8-IV1"),
        ),
        (
            "Invalid config value for resource ConfigResource(type=TOPIC, name='ok'): "
            f"Invalid value 3.0-IV1 for configuration {FORMAT}: Version `3.0-IV1` is not a valid version",
            (FORMAT, "3.0-IV1"),
        ),
        ("Invalid value -3 for configuration segment.bytes: Value must be at least 14", None),
        ("Tiered Storage functionality is disabled in the broker.", None),
        (None, None),
    ],
)
def test_which_property_a_refusal_names(
    detail: str | None, expected: tuple[str, str | None] | None
) -> None:
    for code in (messages.INVALID_CONFIG, messages.INVALID_REQUEST):
        assert (
            refused_property(messages.broker_error(code, "Altering A.o on B", detail)) == expected
        )
    other = messages.broker_error(messages.POLICY_VIOLATION, "Altering A.o on B", detail)
    assert refused_property(other) is None


def test_a_format_that_the_cluster_does_not_know_does_not_hold_back_another_one() -> None:
    def take(wanted: Mapping[str, Properties]) -> dict[str, BrokerError]:
        text = f"Invalid value 2.8-IV1 for configuration {FORMAT}: no"
        return {t: refusal(t, text) for t, p in wanted.items() if p.get(FORMAT) == "2.8-IV1"}

    support = PropertySupport()
    assert support.send({"a": {FORMAT: "2.8-IV1"}, "b": {FORMAT: "2.4"}}, take) == {}
    assert support.objection(FORMAT, "2.4") == ""
    (told,) = support.news()
    assert told == LeftOut("a", FORMAT, "the cluster does not know the version 2.8-IV1")


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.8.2", True),
        ("0.10.2-IV0", True),
        ("0.11.0", False),
        ("0.11.0-IV2", False),
        ("1.0-IV0", False),
        ("2.8", False),
        ("3.0-IV1", False),
        ("", False),
        ("latest", False),
    ],
)
def test_which_formats_have_no_place_for_sequence_numbers(version: str, expected: bool) -> None:
    assert is_unnumbered(version) == expected
    why = PropertySupport().objection(FORMAT, version)
    assert bool(why) == expected
