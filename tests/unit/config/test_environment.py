"""Environment variables as worker properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.environment import (
    properties_from_environment,
    property_name,
    with_environment,
)

_WORD = st.text("abcdefghijklmnopqrstuvwxyz0123456789", min_size=1, max_size=8)
_UNDERSCORES = {".": "_", "_": "__", "-": "___"}


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("CONNECT_REST_PORT", "rest.port"),
        ("CONNECT_PLUGIN_PATH", "plugin.path"),
        ("CONNECT_MY__OWN___KEY", "my_own-key"),
        ("CONNECT_A____B", "a-.b"),
        ("CONNECT_A_____B", "a-_b"),
        ("CONNECT_config_Storage_topic", "config.storage.topic"),
        ("CONNECT_LOG4J_LOGGERS", None),
        ("CONNECT_LOG4J_ROOT_LOGLEVEL", None),
        ("CONNECT_CLASSPATH", None),
        ("CONNECT_CUB_KAFKA_TIMEOUT", None),
        ("CUB_CLASSPATH", None),
        ("CONNECT_", None),
        ("REST_PORT", None),
        ("connect_rest_port", None),
    ],
)
def test_names(variable: str, name: str | None) -> None:
    assert property_name(variable) == name


@given(
    st.lists(_WORD, min_size=1, max_size=6).flatmap(
        lambda words: st.tuples(
            st.just(words),
            st.lists(st.sampled_from(".-_"), min_size=len(words) - 1, max_size=len(words) - 1),
        )
    ),
    st.text(),
)
def test_every_property_can_be_written(parts: tuple[list[str], list[str]], value: str) -> None:
    words, separators = parts
    name = words[0] + "".join(s + w for s, w in zip(separators, words[1:], strict=True))
    variable = words[0] + "".join(
        _UNDERSCORES[s] + w for s, w in zip(separators, words[1:], strict=True)
    )
    environ = {f"CONNECT_{variable.upper()}": value, "OTHER": "x"}
    expected = {} if variable.upper().startswith(("LOG4J_", "CUB_")) else {name: value}
    if variable.upper() != "CLASSPATH":
        assert properties_from_environment(environ) == expected


@given(st.text())
def test_any_variable_gives_a_name_or_none(variable: str) -> None:
    name = property_name(f"CONNECT_{variable}")
    assert name is None or name == name.lower()


def test_values_are_literal_and_win_over_the_file() -> None:
    environ = {"CONNECT_GROUP_ID": '"quickstart"', "CONNECT_X": " a\\tb "}
    assert with_environment({"group.id": "file", "y": "1"}, environ) == {
        "group.id": '"quickstart"',
        "y": "1",
        "x": " a\\tb ",
    }


def test_another_prefix() -> None:
    assert properties_from_environment({"W_A_B": "1", "CONNECT_C": "2"}, "W_") == {"a.b": "1"}
