"""What is written for the literal of a header; the expected texts are those of Kafka's own classes."""

from __future__ import annotations

import pytest

from sparkmirror.errors import ConfigError
from sparkmirror.transforms.literals import header_bytes


@pytest.mark.parametrize(
    "literal",
    [
        "",
        "abc",
        " abc ",
        "eu-west-1",
        "10.0.0.1",
        "True",
        "true}",
        "NULL",
        '"quoted"',
        'say "hi"',
        "a,b",
        "a:b",
        "{a:1}",
        "[abc]",
        "[1,null]",
        '{"a":true, "d":null}',
        "é€",
        r"a\:b",
        "-",
        "-x",
        "5x",
        "0x10",
        "5 6",
        ".5",
        "   ",
        "1e5123456789012",
        "2020-01-01 x",
        '{"a":',
        "[1",
        "[1,,2]",
        "{,}",
        "{null:1}",
        "[1 2]",
    ],
)
def test_texts_stay_what_they_are(literal: str) -> None:
    assert header_bytes(literal) == literal.encode()


@pytest.mark.parametrize(
    ("literal", "expected"),
    [
        (" true ", "true"),
        ("5", "5"),
        (" 5 ", "5"),
        ("+5", "5"),
        ("007", "7"),
        ("1e3", "1000"),
        ("1.0", "1"),
        ("1.10", "1.1"),
        ("-0", "0"),
        ("3.14159265358979", "3.1415927"),
        ("1e39", "1.0E39"),
        ("99999999999999999999", "99999999999999999999"),
        ("1e400", "1E+400"),
        ("1e-50", "0.0"),
        ("-1e-50", "-0.0"),
        ("12345678.9", "1.2345679E7"),
        ("1234567.8", "1234567.8"),
        ("0.001", "0.001"),
        ("0.00099", "9.9E-4"),
        ("5, Main Street", "5"),
        ("5:6", "5"),
        ("2020-01-01", "2020-01-01"),
        ("2020-01-01T00:00:00.000Z", "2020-01-01"),
        ("2020-01-01T10:11:12.013Z", "2020-01-01T10:11:12.013Z"),
        ("12:34:56.789Z", "12:34:56.789Z"),
        ("12:34:56.789Z extra", "12"),
        ("1970-01-01", "00:00:00.000Z"),
        ("2020-13-45", "2021-02-14"),
        ("20-01-2020", "00:00:00.000Z"),
        ("[1, 2.5]", "[1.0,2.5]"),
        ("[1.5,2]", "[1.5,2.0]"),
        ("[ ]", "[]"),
        ("{}", "{}"),
        ('[ "a" , "b c" ]', '["a","b c"]'),
        ('{"a": 1, "b" : "x"}', '{"a":1,"b":"x"}'),
        ('{"a":1 "b":2}', '{"a":1,"b":2}'),
        ("[1,]", "[1]"),
        ('[1,"a"]', '[1,"a"]'),
        ('{"a":{"b":[1,2]}}', '{"a":{"b":[1,2]}}'),
        ('{"a":null}', '{"a":null}'),
        (r'{"a":"x\"y"}', r'{"a":"x\\\"y"}'),
        ('["2020-01-01","x"]', '[2020-01-01,"x"]'),
        ("[12:34:56.789Z]", "[12:34:56.789Z]"),
        ("[1,2]x", "[1,2]"),
        ('{"a":1,"b":2.5}', '{"a":1.0,"b":2.5}'),
        ('{"d":0.1,"d":300}', '{"d":300.0}'),
        ('{"a":0.5,"b":1e39}', '{"a":0.5,"b":1.0E39}'),
        ("{true:1}", "{true:1}"),
    ],
)
def test_values_are_written_as_java_writes_them(literal: str, expected: str) -> None:
    assert header_bytes(literal) == expected.encode()


@pytest.mark.parametrize("literal", ["null", " null"])
def test_null_is_no_value(literal: str) -> None:
    assert header_bytes(literal) is None


@pytest.mark.parametrize(
    "literal", ['[1,"a",2]', '["2020-01-01", 5]', '["12:34:56.789Z","2020-01-01"]']
)
def test_what_java_makes_something_strange_of_is_refused(literal: str) -> None:
    with pytest.raises(ConfigError, match="several kinds"):
        header_bytes(literal)
