"""Key tables and their parsing: types, defaults, former names, and all problems at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.definitions import (
    CHECKPOINT_KEYS,
    HEARTBEAT_KEYS,
    MIRROR_KEYS,
    SOURCE_CONNECTOR_KEYS,
    SOURCE_KEYS,
    Key,
    KeyType,
    check,
    connector_key_names,
    parse,
)
from sparkmirror.config.keys import convert, split_list
from sparkmirror.errors import ConfigError

MINIMAL = {"name": "m", "connector.class": "c", "source.cluster.alias": "A"}


def test_tables_have_as_many_visible_keys_as_kafka_4_3() -> None:
    def visible(keys: tuple[Key, ...]) -> int:
        return sum(not key.hidden for key in keys)

    assert (visible(SOURCE_KEYS), visible(CHECKPOINT_KEYS), visible(HEARTBEAT_KEYS)) == (
        113,
        108,
        97,
    )
    assert len(SOURCE_CONNECTOR_KEYS) == 5


@pytest.mark.parametrize("keys", [SOURCE_KEYS, CHECKPOINT_KEYS, HEARTBEAT_KEYS])
def test_every_key_is_unique_documented_and_has_a_default_that_it_accepts(
    keys: tuple[Key, ...],
) -> None:
    names = [key.name for key in keys]
    assert len(set(names)) == len(names)
    assert all(key.doc and key.display_name for key in keys)
    defaults = {key.name: key.default for key in keys if key.default is not None}
    assert check(keys, MINIMAL | defaults) == []
    assert dict(parse(keys, MINIMAL)) == dict(parse(keys, MINIMAL | defaults))


def test_the_only_defaults_of_ours_that_differ_are_how_often_things_are_done() -> None:
    every = {k.name: k for k in (*SOURCE_KEYS, *CHECKPOINT_KEYS, *HEARTBEAT_KEYS)}
    differing = [key for key in every.values() if key.mm2_default is not None]
    assert [(k.name, k.default, k.mm2_default) for k in differing] == [
        ("refresh.topics.interval.seconds", "30", "600"),
        ("emit.checkpoints.interval.seconds", "5", "60"),
    ]


def test_defaults_are_typed() -> None:
    values = parse(SOURCE_KEYS, MINIMAL)
    assert values.boolean("enabled") is True
    assert values.integer("offset.lag.max") == 100
    assert values.text("offset-syncs.topic.location") == "source"
    assert values.items_of("topics.exclude") == (r"mm2.*\.internal", r".*\.replica", "__.*")
    assert values["sasl.login.refresh.window.factor"] == 0.8
    assert values["ssl.provider"] is None
    assert values.given == frozenset(MINIMAL)
    assert values.warnings == ()


@pytest.mark.parametrize("text", ["true", "TRUE", " True "])
def test_booleans_ignore_case_and_blanks(text: str) -> None:
    assert parse(SOURCE_KEYS, MINIMAL | {"enabled": text}).boolean("enabled") is True


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("enabled", "yes", "Expected value to be either true or false"),
        ("tasks.max", "0", "Value must be at least 1"),
        ("tasks.max", "two", "Not a number of type INT"),
        ("tasks.max", "2147483648", "Not a number of type INT"),
        ("admin.timeout.ms", "1_000", "Not a number of type LONG"),
        ("admin.timeout.ms", "1.5", "Not a number of type LONG"),
        ("offset-syncs.topic.replication.factor", "40000", "Not a number of type SHORT"),
        ("offset-syncs.topic.location", "Source", "String must be one of: source, target"),
        ("security.protocol", "TLS", r"\(case insensitive\): SASL_SSL, PLAINTEXT, SSL"),
        ("errors.tolerance", "ALL", "String must be one of: none, all"),
        ("sasl.login.refresh.window.factor", "0.1", "Value must be at least 0.5"),
        ("sasl.login.refresh.min.period.seconds", "901", "Value must be no more than 900"),
        ("sasl.login.refresh.window.factor", "1e", "Not a number of type DOUBLE"),
        ("topics", "a,,b", "'topics' values must not be empty"),
        ("metric.names.formats", "", "must not be empty. Valid values include"),
        ("metric.names.formats", "old", "String must be one of: legacy, new"),
        ("transforms", "a,a", "Duplicate alias provided"),
        ("name", "", "String may not be empty"),
        ("name", "a\u0007b", "following ASCII chars: 7"),
        ("replication.policy.class", "", "Class  could not be found"),
    ],
)
def test_wrong_values_are_refused_in_kafkas_words(key: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        parse(SOURCE_KEYS, MINIMAL | {key: value})
    assert key in raised.value.message


@pytest.mark.parametrize(
    ("key", "value", "typed"),
    [
        ("tasks.max", " +3 ", 3),
        ("replication.factor", "-1", -1),
        ("security.protocol", "sasl_ssl", "sasl_ssl"),
        ("sasl.login.refresh.window.factor", "1d", 1.0),
        ("topics", "", ()),
        ("topics", " a , b.* ,c", ("a", "b.*", "c")),
        ("ssl.keystore.password", " s3cret ", "s3cret"),
    ],
)
def test_right_values_are_typed(key: str, value: str, typed: object) -> None:
    assert parse(SOURCE_KEYS, MINIMAL | {key: value})[key] == typed


def test_all_problems_come_at_once() -> None:
    values = {"tasks.max": "x", "enabled": "y", "topics": "a,", "connector.class": "c"}
    with pytest.raises(ConfigError) as raised:
        parse(SOURCE_KEYS, values)
    message = raised.value.message
    assert message.startswith("5 settings are wrong:")
    for part in ('"name"', '"source.cluster.alias"', "tasks.max", "enabled", "'topics'"):
        assert part in message


def test_passwords_are_not_shown() -> None:
    key = Key(name="p", type=KeyType.PASSWORD, validator=lambda name, value: f"{name} is bad")
    (problem,) = check([key], {"p": "s3cret"})
    assert "s3cret" not in problem.message


def test_duplicate_entries_count_once_with_a_warning() -> None:
    values = parse(SOURCE_KEYS, MINIMAL | {"topics": "b, a ,b"})
    assert values.items_of("topics") == ("b", "a")
    assert values.warnings == ("topics has duplicate entries; each counts once.",)


def test_former_names_count_when_the_new_ones_are_absent() -> None:
    old = MINIMAL | {"topics.blacklist": "x", "config.properties.blacklist": "y"}
    values = parse(SOURCE_KEYS, old)
    assert values.items_of("topics.exclude") == ("x",)
    assert values.items_of("config.properties.exclude") == ("y",)
    assert values.warnings[0] == "topics.blacklist is a former name of topics.exclude."
    assert parse(SOURCE_KEYS, old | {"topics.exclude": "z"}).items_of("topics.exclude") == ("z",)
    groups = parse(CHECKPOINT_KEYS, MINIMAL | {"groups.blacklist": "g"})
    assert groups.items_of("groups.exclude") == ("g",)


def test_task_keys_are_no_connector_keys() -> None:
    assert not {name for name in connector_key_names() if name.startswith("task.")}
    assert not {"exactly.once.support", "topic.creation.groups"} & connector_key_names()
    assert {"topics.blacklist", "groups", "emit.heartbeats.enabled"} <= connector_key_names()


def test_accessors_refuse_keys_of_another_type() -> None:
    values = parse(MIRROR_KEYS, MINIMAL)
    for access in (values.boolean, values.integer, values.items_of):
        with pytest.raises(TypeError):
            access("name")
    with pytest.raises(TypeError):
        values.text("enabled")


@given(st.integers())
def test_integers_fit_their_type(number: int) -> None:
    for key_type, bits in ((KeyType.SHORT, 16), (KeyType.INT, 32), (KeyType.LONG, 64)):
        if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            assert convert(key_type, f" {number}\t") == number
        else:
            with pytest.raises(ValueError, match=f"type {key_type}"):
                convert(key_type, str(number))


_ITEM = st.text(st.characters(exclude_characters=",", min_codepoint=33), min_size=1).filter(
    lambda item: item.strip() == item
)


@given(st.lists(_ITEM), st.sampled_from([",", " , ", ",\t", " ,"]))
def test_lists_are_split_at_commas_without_the_blanks(items: list[str], separator: str) -> None:
    assert split_list(separator.join(items)) == tuple(items)
