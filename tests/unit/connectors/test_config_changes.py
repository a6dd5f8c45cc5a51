"""Which properties a remote topic gets: when it is created, and at each sync after that."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.connectors.metadata import creation_configs
from sparkmirror.connectors.topic_configs import Change, alterations, changes
from sparkmirror.kafka.admin import ConfigEntry
from sparkmirror.kafka.topic_configs import Alteration
from sparkmirror.policy.filters import ConfigPropertyFilter

TOPIC, BROKER, BROKERS, STATIC, DEFAULT = 1, 2, 3, 4, 5
ALL = ConfigPropertyFilter(())


def entry(
    name: str,
    value: str | None,
    source: int = TOPIC,
    *,
    read_only: bool = False,
    secret: bool = False,
) -> ConfigEntry:
    return ConfigEntry(name, value, read_only, secret, source)


def told(
    *entries: ConfigEntry, exclude: tuple[str, ...] = (), with_defaults: bool = False
) -> dict[str, str | None]:
    """What a sync says of each property: the value to set, None to set it no longer."""
    found = alterations(entries, ConfigPropertyFilter(exclude), with_defaults=with_defaults)
    assert all((one.operation == "DELETE") == (one.value is None) for one in found)
    assert len({one.name for one in found}) == len(found)
    return {one.name: one.value for one in found}


def test_a_sync_sets_what_is_set_and_takes_defaults_back() -> None:
    """C-049: defaults are kept in the selection, what is excluded is not."""
    entries = (
        entry("name-1", "value-1"),
        entry("name-2", "value-2", DEFAULT),
        entry("min.insync.replicas", "2"),
    )
    assert told(*entries, exclude=("min.insync.replicas",)) == {"name-1": "value-1", "name-2": None}


def test_a_sync_sets_the_sources_defaults_if_they_are_to_count() -> None:
    entries = (entry("name-1", "value-1"), entry("name-2", "value-2", DEFAULT))
    assert told(*entries, with_defaults=True) == {"name-1": "value-1", "name-2": "value-2"}


def test_a_format_that_was_set_on_the_remote_topic_stays() -> None:
    """It is the remedy where the target's brokers default to a format without sequence numbers."""
    assert told(entry("message.format.version", "2.4-IV1", DEFAULT)) == {}
    assert told(entry("message.format.version", "2.4-IV1")) == {"message.format.version": "2.4-IV1"}


@pytest.mark.parametrize("source", [BROKER, BROKERS])
def test_values_that_were_set_for_the_sources_brokers_while_they_run_are_copied(
    source: int,
) -> None:
    assert told(entry("retention.ms", "5", source)) == {"retention.ms": "5"}
    assert creation_configs([entry("retention.ms", "5", source)], ALL, with_defaults=False) == {
        "retention.ms": "5"
    }


def test_what_is_not_the_topics_affair_is_left_alone() -> None:
    entries = (
        entry("from.file", "1", STATIC),
        entry("fixed", "1", read_only=True),
        entry("password", None, secret=True),
    )
    assert told(*entries) == {}
    assert told(*entries, with_defaults=True) == {}
    assert creation_configs(entries, ALL, with_defaults=True) == {}


@pytest.mark.parametrize(
    ("with_defaults", "expected"), [(False, {"a": "1"}), (True, {"a": "1", "b": "2"})]
)
def test_a_new_topic_gets_defaults_only_if_the_sources_are_to_count(
    with_defaults: bool, expected: dict[str, str]
) -> None:
    """C-050."""
    entries = [entry("a", "1"), entry("b", "2", DEFAULT), entry("excluded", "3")]
    wanted = ConfigPropertyFilter(("excluded",))
    assert creation_configs(entries, wanted, with_defaults=with_defaults) == expected


def test_exclusions_of_a_new_topic_may_be_patterns() -> None:
    """C-051."""
    entries = [
        entry("name-1", "value-1"),
        entry("exclude_param.param1", "value-param1"),
        entry("min.insync.replicas", "2"),
    ]
    wanted = ConfigPropertyFilter((r"exclude_param.*", "min.insync.replicas"))
    assert creation_configs(entries, wanted, with_defaults=False) == {"name-1": "value-1"}
    assert told(*entries, exclude=(r"exclude_param.*", "min.insync.replicas")) == {
        "name-1": "value-1"
    }


def test_only_what_differs_is_altered() -> None:
    wanted = [Alteration("a", "SET", "1"), Alteration("b", "SET", "2"), Alteration("c", "DELETE")]
    assert changes(wanted, [entry("a", "1"), entry("b", "2"), entry("c", "9", DEFAULT)]) == ()
    assert changes(wanted, [entry("a", "1"), entry("b", "7"), entry("c", "9")]) == (
        Change("b", "SET", "7", "2"),
        Change("c", "DELETE", "9", None),
    )


@pytest.mark.parametrize("source", [BROKER, BROKERS, STATIC, DEFAULT])
def test_a_value_that_the_remote_topic_has_from_elsewhere_is_set_all_the_same(source: int) -> None:
    (found,) = changes([Alteration("a", "SET", "1")], [entry("a", "1", source)])
    assert (found.operation, found.after) == ("SET", "1")
    assert changes([Alteration("a", "DELETE")], [entry("a", "1", source)]) == ()


def test_a_property_that_the_target_does_not_know() -> None:
    """Setting it is tried, so that the target's refusal is told; taking it back is not."""
    assert changes([Alteration("new", "SET", "1")], []) == (Change("new", "SET", "nothing", "1"),)
    assert changes([Alteration("new", "DELETE")], []) == ()


def test_a_change_reads_well() -> None:
    wanted = [Alteration("retention.ms", "SET", "5"), Alteration("cleanup.policy", "DELETE")]
    found = changes(
        wanted, [entry("retention.ms", "7", DEFAULT), entry("cleanup.policy", "compact")]
    )
    assert list(map(str, found)) == [
        "retention.ms from 7 (not set on the topic) to 5",
        "cleanup.policy from compact to the cluster's default",
    ]


names = st.text(string.ascii_lowercase, min_size=1, max_size=3)
values = st.text(string.digits, min_size=1, max_size=2)


def topics() -> st.SearchStrategy[list[ConfigEntry]]:
    found = st.dictionaries(
        names, st.tuples(values, st.sampled_from([TOPIC, BROKERS, STATIC, DEFAULT]))
    )
    return found.map(lambda d: [entry(name, v, source) for name, (v, source) in d.items()])


@given(topics(), topics(), st.lists(names, max_size=2), st.booleans())
def test_sending_the_differences_does_what_sending_everything_does(
    source: list[ConfigEntry], target: list[ConfigEntry], exclude: list[str], with_defaults: bool
) -> None:
    everything = alterations(source, ConfigPropertyFilter(exclude), with_defaults=with_defaults)
    before = {e.name: e.value for e in target if e.is_set_on_topic}
    needed = [
        Alteration(change.name, change.operation, change.after)
        for change in changes(everything, target)
    ]
    assert applied(before, needed) == applied(before, everything)
    after = [entry(name, value) for name, value in applied(before, needed).items()]
    assert changes(everything, after) == ()


def applied(own: dict[str, str | None], wanted: list[Alteration]) -> dict[str, str | None]:
    """What the broker makes of it: the topic's own properties after that."""
    found = dict(own)
    for one in wanted:
        if one.operation == "SET":
            found[one.name] = one.value
        else:
            found.pop(one.name, None)
    return found
