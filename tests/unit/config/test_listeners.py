"""Listeners and header rules in one line each, and values as Java writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.java_order import hash_order, java_hash
from sparkmirror.config.listeners import (
    HeaderRule,
    Listener,
    check_listeners,
    parse_header_rules,
    parse_listener,
)
from sparkmirror.config.validators import java_text


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("http://:8083", Listener("http", "", 8083)),
        ("HTTPS://my-host.example:0", Listener("https", "my-host.example", 0)),
        (" http://127.0.0.1:1 ", Listener("http", "127.0.0.1", 1)),
        ("http://[fe80::1%eth0]:2", Listener("http", "fe80::1%eth0", 2)),
    ],
)
def test_listeners(text: str, listener: Listener) -> None:
    assert parse_listener(text) == listener
    assert parse_listener(str(listener)) == listener


@pytest.mark.parametrize("text", ["", "http://", "http://x", "x:1", "ftp://x:1", "http://x:99999"])
def test_wrong_listeners(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        parse_listener(text)


def test_listeners_may_not_be_empty_but_admin_listeners_may() -> None:
    assert check_listeners("admin.listeners", ()) is None
    assert check_listeners("admin.listeners", None) is None
    assert check_listeners("listeners", ()) is not None
    assert check_listeners("listeners", ("http://:1", "x")) is not None


def test_header_rules() -> None:
    text = 'add Cache-Control:no-cache, "set X:a, ""b""" ,SETDATE Expires:31540000000,'
    assert parse_header_rules(text) == (
        HeaderRule("add", "Cache-Control", "no-cache"),
        HeaderRule("set", "X", 'a, "b"'),
        HeaderRule("setDate", "Expires", "31540000000"),
    )
    assert parse_header_rules("") == parse_header_rules(" , ") == ()


@pytest.mark.parametrize("text", ["set", "set X", "put X:1", "set X:1:2", "set :1", "set a b:1"])
def test_wrong_header_rules(text: str) -> None:
    with pytest.raises(ValueError, match="'"):
        parse_header_rules(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (("a", "b"), "[a, b]"),
        (0.8, "0.8"),
        (1.0, "1.0"),
        (1e7, "1.0E7"),
        (1.5e-5, "1.5E-5"),
        (123456789.5, "1.234567895E8"),
        (12, "12"),
    ],
)
def test_values_as_java_writes_them(value: object, text: str) -> None:
    assert java_text(value) == text


def test_hash_codes_are_javas() -> None:
    # What String.hashCode gives, without its sign: overflow, and a character beyond 16 bits.
    known = {"": 0, "a": 97, "polygenelubricants": 0x80000000, "\U0001f600": 1772899}
    assert {text: java_hash(text) for text in known} == known


def test_the_order_of_a_java_map() -> None:
    put = ["acks", "linger.ms", "bootstrap.servers", "foo", "sasl.jaas.config"]
    assert hash_order(put) == ["acks", "foo", "sasl.jaas.config", "bootstrap.servers", "linger.ms"]


@given(st.lists(st.text()))
def test_the_order_of_a_map_keeps_every_key_once(keys: list[str]) -> None:
    assert sorted(hash_order(keys)) == sorted(set(keys))
