"""Patterns of Java as RE2 writes them: which are taken, and what they match then; and which are left to Spark."""

from __future__ import annotations

from typing import Any

import pytest

from sparkmirror.dataplane.query.columns import Edit
from sparkmirror.dataplane.query.edits import can_be_made, completed, edited
from sparkmirror.dataplane.query.patterns import rewritten, translated
from sparkmirror.dataplane.query.slices import Given
from sparkmirror.transforms.record import ConnectRecord


def replaced(text: str, pattern: str, replacement: str) -> str:
    found = translated(pattern)
    assert found is not None
    written = rewritten(replacement, found.groups)
    assert written is not None
    (made,) = edited([text.encode()], Edit("value", ((found.text, written),)))
    assert made is not None
    return made.decode()


@pytest.mark.parametrize(
    ("text", "pattern", "replacement", "made"),
    [
        ('{"a":"x1","b":2}', '"a":"[^"]*"', '"a":"***"', '{"a":"***","b":2}'),
        ("a1b22", "[0-9]+", "#", "a#b#"),
        ("a1b22", "[0-9]", "#", "a#b##"),
        ("a1b22", r"(\w)(\d)", "$2$1.$0", "1a.a12b.b22"),
        ("ab", "(a)|(b)", "[$1$2]", "[a][b]"),
        ("aaa", "a{2}", "x", "xa"),
        ("aaa", "a+?", "x", "xxx"),
        ("foobar", "foo|foobar", "x", "xbar"),
        ("foobar", "(?:fo|foob)o?", "x", "xbar"),
        ("x.y*z", r"\.y\*", "", "xz"),
        ("a\x0bb\xa0c", r"[\s]", "_", "a_b\xa0c"),
        ("a\u2028b\nc\rd\x85e", "[a-e].", "_", "a\u2028b\nc\rd\x85e"),
        ("a\U0001f600b", "a.b", "x", "x"),
        ("1-2", "[0-9-]+", "x", "x"),
        ("a\\b", r"\\", "/", "a/b"),
        ("\u0661", r"\d", "x", "\u0661"),
        ("caf\xe9", "[^a-z]", "e", "cafe"),
        ("{}[]()", r"[{}()]", "", "[]"),
    ],
)
def test_what_they_match(text: str, pattern: str, replacement: str, made: str) -> None:
    assert replaced(text, pattern, replacement) == made


@pytest.mark.parametrize(
    "pattern",
    [
        "", "a*", "a?", "(a|)", "a|b*", "(?:)",  # may match nothing
        "^a", "a$", r"\ba", r"a\z", r"\Aa",  # where something begins or ends
        "(a)+", "(?:ab)*c", "(a|b){2}", "(a)?b",  # repeats a group
        "a++", "a*+b", "a{2}+", "a?+b", "a**",
        "(?i)a", "(?=a)b", "(?<!a)b", "(?<name>a)", "(?>a)",
        r"(a)\1", r"\p{L}", r"\x41", r"\u0041", r"\Qa\E", r"\e", r"\D", r"\h", r"\0",
        "[a-z&&[b]]", "[a[b]]", "[^^]", "[-a]", "[a-]b-]", "[&]", "[z-a]", "[a-\\d]", r"[\d-x]", "[]a]",
        "[+--]", "[!-~]", "a{2,1}", "a{999}", "a{65}", "[0-9]{9}" * 8, "a{0}",
        "a{,2}", "a{", "a}", "]", "(a", "a)", "[a", "a\\", "caf\xe9",
        "a" * 2001, "(" * 1500 + "a" + ")" * 1500,
    ],
)  # fmt: skip
def test_what_is_left_to_spark(pattern: str) -> None:
    assert translated(pattern) is None


@pytest.mark.parametrize(
    "text", ["$", "a$", "$a", "${name}", r"\$", "\\", "$2", "$10", "$1$3", "$\u0661"]
)
def test_replacements_that_are_left_to_spark(text: str) -> None:
    assert rewritten(text, 1) is None


def test_what_re2_does_not_take_is_not_made() -> None:
    assert can_be_made(Edit("value", (("a", ""),)))
    assert not can_be_made(Edit("value", (("(", ""),)))


def test_one_replacement_after_the_other() -> None:
    edit = Edit("value", (("a", "b"), ("bb", "c")))
    assert edited([b"ab", None, b"", b"aa"], edit) == [b"c", None, b"", b"c"]


def test_what_spark_has_made_stays() -> None:
    values = [b"a0", b"a1", None, b"a\xff", b"a4"]
    rows = [ConnectRecord("t", 0, n, 1, b"a-key", value, []) for n, value in enumerate(values)]
    edits = {"value": Edit("value", (("a", "b"),)), "key": Edit("key", (("-", "_"),))}
    columns: dict[str, list[Any]] = {
        "value": [None, None, b"b by Spark", None],
        "key": [None] * 4,
        "topic": ["t"] * 4,
    }
    found = completed(Given([0, 2, 3, 4], columns), rows, edits)
    assert found.rows == [0, 2, 3, 4]
    assert found.columns == {
        "value": [b"b0", None, b"b by Spark", b"b4"],
        "key": [b"a_key"] * 4,
        "topic": ["t"] * 4,
    }
    assert columns["value"][0] is None
    assert completed(Given([], {}), rows, edits) == Given([], {})
