"""JAAS entries are read as Java reads them, and no message shows what they hold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.jaas import JaasEntry, parse_jaas

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
WHERE = "Cluster a: sasl.jaas.config"


def options(text: str) -> dict[str, str]:
    return parse_jaas(f"{MODULE} required {text}", WHERE).options


def test_a_module_its_flag_and_its_options() -> None:
    entry = parse_jaas(f'{MODULE} required\n  username="alice"\n  password="secret";\n', WHERE)
    assert entry == JaasEntry(MODULE, "REQUIRED", {"username": "alice", "password": "secret"})
    assert parse_jaas(f"{MODULE} Optional;", WHERE) == JaasEntry(MODULE, "OPTIONAL", {})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('p="a b";', "a b"),
        ("p='a \"b\"';", 'a "b"'),
        ('p="it\'s";', "it's"),
        (r'p="a\"b\\c";', 'a"b\\c'),
        (r'p="a\tb\n\v";', "a\tb\n\v"),
        (r'p="\101\60\7x\400";', "A0\x07x\x200"),
        (r'p="\$\;";', "$;"),
        ('p="a;b=c/*d*/";', "a;b=c/*d*/"),
        ('p="";', ""),
        ("p=plain-word_1.2$;", "plain-word_1.2$"),
        ("p=true;", "true"),
        ("p = /* why */ x // because\n;", "x"),
        ("p=x / one slash, too\n;", "x"),
        ('p="päßwörd€😀";', "päßwörd€😀"),
        ("p=ü;", "ü"),
        ('p="one" p="two";', "two"),
        # Java lets a quote end with its line.
        ('p="open\n;', "open"),
    ],
)
def test_values_as_java_reads_them(text: str, value: str) -> None:
    assert options(text) == {"p": value}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "names no login module"),
        ("// nothing\n", "names no login module"),
        (MODULE, "no control flag"),
        (f"{MODULE};", "no control flag"),
        ("5 required;", "does not begin with"),
        (f'{MODULE} password="hush";', "something else than a control flag"),
        (f"{MODULE} needed;", "something else than a control flag"),
        (f'{MODULE} required password="hush"', "does not end with ';'"),
        (f'{MODULE} required password="hush;', "does not end with ';'"),
        (f"{MODULE} required password=;", "option number 1"),
        (f'{MODULE} required username="u" password;', "option number 2"),
        # A number is no value for Java, nor is what stands behind a sign.
        (f"{MODULE} required password=7hush;", "option number 1"),
        (f"{MODULE} required password=hush!hush;", "option number 2"),
        (f'{MODULE} required password="hush"hush";', "option number 2"),
        (f'{MODULE} required password="hush"; {MODULE} required;', "goes on after the ';'"),
    ],
)
def test_what_is_wrong_is_said_without_the_value(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as raised:
        parse_jaas(text, WHERE)
    assert str(raised.value).startswith(WHERE)
    assert raised.value.remedy
    assert "hush" not in str(raised.value)


def test_an_entry_does_not_show_its_options() -> None:
    assert "hush" not in repr(parse_jaas(f'{MODULE} required password="hush";', WHERE))


_NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.\-]{0,12}", fullmatch=True)


@given(st.dictionaries(_NAMES, st.text(st.characters(exclude_categories=["Cs"]))))
def test_quoted_values_come_back(given: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        for plain, escaped in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
            value = value.replace(plain, escaped)
        return f'"{value}"'

    text = " ".join(f"{name}={quoted(value)}" for name, value in given.items())
    assert options(f"{text};") == given


@given(st.text(), st.text())
def test_nothing_but_an_entry_or_a_config_error_comes_of_any_text(before: str, after: str) -> None:
    try:
        entry = parse_jaas(f"{before}{MODULE} required {after}", WHERE)
    except ConfigError as error:
        assert str(error).startswith(WHERE)
    else:
        assert entry.flag == "REQUIRED" or before
