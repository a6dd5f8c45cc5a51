"""Values that are made to take long: whoever calls REST may send megabytes, and Python's expressions let nothing else run."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sparkmirror.config.keys import KeyType, convert, split_list
from sparkmirror.config.providers import references, resolve
from sparkmirror.config.query import _statement
from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access import pem
from sparkmirror.secret_names import secrets_in
from sparkmirror.transforms.literals import header_bytes
from sparkmirror.transforms.settings import listed

_SIZE = 300_000
_MOST_S = 3.0


def _again(text: str) -> str:
    return text * (_SIZE // len(text))


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda value: resolve({"a": value}), _again("${:")),
        (lambda value: resolve({"a": value}), "${" + _again(":")),
        (lambda value: resolve({"a": value}), _again("${a}")),
        (lambda value: convert(KeyType.DOUBLE, value), _again("1") + "x"),
        (lambda value: convert(KeyType.LONG, value), _again("1") + "x"),
        (split_list, "a" + _again(" ") + "b"),
        (listed, "a" + _again(" ") + "b"),
        (lambda value: secrets_in({"x.sasl.jaas.config": value}), _again("a")),
        (lambda value: secrets_in({"x.sasl.jaas.config": value}), _again("a= ")),
        (lambda value: secrets_in({"x.sasl.jaas.config": value}), _again("a=\"b='")),
        (lambda value: pem.certificates(value, "here"), _again("-----BEGIN A-----")),
        (lambda value: pem.certificates(value, "here"), _again("-----BEGIN ")),
        (lambda value: pem.certificates(value, "here"), "-----BEGIN " + _again("A")),
        (_statement, "'" + _again("\\'")),
        (_statement, "'" + _again("\\'") + "\\"),
        (_statement, _again("/*")),
        (_statement, _again("'`")),
        (header_bytes, _again("1") + "x"),
        (header_bytes, "1e" + _again("1")),
        (header_bytes, _again("[")),
        (header_bytes, _again('{"')),
    ],
)
def test_takes_little_time(read: Callable[[str], object], value: str) -> None:
    began = time.perf_counter()
    with contextlib.suppress(ConfigError, ValueError):
        read(value)
    assert time.perf_counter() - began < _MOST_S


_KAFKAS = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}", re.DOTALL)
_JAVAS_LIST = re.compile(r"\s*,\s*", re.ASCII)


@given(st.text("${:}ab\n", max_size=24))
def test_references_are_those_of_kafka(value: str) -> None:
    assert references({"a": value}) == {found[0] for found in _KAFKAS.finditer(value)}


@given(st.lists(st.sampled_from(["${env:", "${", "b", "}", ":", " "]), max_size=10).map("".join))
def test_references_are_replaced_as_by_kafka(value: str) -> None:
    found = [match for match in _KAFKAS.finditer(value) if match[1] == "env"]
    assume(not any(match[2] for match in found))  # variables have no paths
    variables = {match[3]: f"<{match[3]}>" for match in found}
    resolved = resolve({"x": value}, variables, {})["x"]
    wanted = _KAFKAS.sub(lambda match: f"<{match[3]}>" if match[1] == "env" else match[0], value)
    assert resolved == (value if wanted == value else wanted.strip())


@given(st.text("a, \t\x85\xa0", max_size=12))
def test_lists_are_split_as_by_java(value: str) -> None:
    trimmed = value.strip("".join(map(chr, range(0x21))))
    assert split_list(value) == (tuple(_JAVAS_LIST.split(trimmed)) if trimmed else ())


def test_comments() -> None:
    assert _statement("SELECT 1; /* and so on") == "SELECT 1; /* and so on"
    assert _statement("SELECT 1 /* a /* b */ */ ; -- done") == "SELECT 1 /* a /* b */ */"


def test_literals_that_java_could_not_read_either() -> None:
    with pytest.raises(ConfigError, match="nested too deeply"):
        header_bytes("[" * 3000)
    assert header_bytes("1e" + "1" * 5000) == b"1e" + b"1" * 5000
