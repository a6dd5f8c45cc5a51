"""Names of topics as Java's routers make them; the expected ones were given by Kafka's own classes."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.policy.java_pattern import JavaPattern
from sparkmirror.transforms.dates import DatePattern, milliseconds
from sparkmirror.transforms.record import ConnectRecord
from sparkmirror.transforms.routers import RegexRouter, TimestampRouter, java_replacement
from sparkmirror.transforms.settings import Settings


def router(regex: str, replacement: str) -> RegexRouter:
    return RegexRouter.parse(Settings({"regex": regex, "replacement": replacement}, ""))


@pytest.mark.parametrize(
    ("regex", "replacement", "topic", "expected"),
    [
        (r"A\.(.*)", "$1", "A.orders", "orders"),
        (r"A\.(.*)", "$1", "B.orders", "B.orders"),
        ("orders", "x", "A.orders", "A.orders"),  # the whole name must match
        ("a|ab", "Z", "ab", "Zb"),  # and then the first place where it does is replaced
        ("(a)(b)?", "$2$1", "a", "a"),
        (r"(?<name>.*)-\d+", "${name}", "orders-12", "orders"),
        ("(.*)", r"\$1", "t", "$1"),
        ("(.*)", r"a\\b", "t", r"a\b"),
        ("(.)(.*)", "$12", "xy", "x2"),  # there is no group 12
        ("(.*)", "$01", "t", "t"),
        ("(.*)", "$00", "t", "t"),
        (".*", "", "t", ""),
        ("a*", "x", "aa", "x"),
        ("(.*?)(b*)", "[$1|$2]", "abb", "[|]abb"),
        ("(?i)a.*", "x", "ABC", "x"),
    ],
)
def test_regex_router(regex: str, replacement: str, topic: str, expected: str) -> None:
    one = ConnectRecord(topic, 1, 2, 3, b"k", b"v", [])
    found = router(regex, replacement)
    assert found.apply(one) == one._replace(topic=expected)
    assert found.route(topic) == expected


def test_eleven_groups_are_counted() -> None:
    regex = JavaPattern("(.)" * 11 + "(.*)", "k")
    assert java_replacement("$11$1$2", regex, "k") == (11, 1, 2)
    assert java_replacement("$13", regex, "k") == (1, "3")


# 2023-11-14 22:13:20.123 UTC, a Tuesday.
TIME = 1_700_000_000_123


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("yyyyMMdd", "20231114"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSZ", "2023-11-14T22:13:20.123+0000"),
        ("yy y yyyyy", "23 2023 02023"),
        ("YYYY-ww", "2023-46"),
        ("D DDDD d F W", "318 0318 14 2 3"),
        ("E EEE EEEE u", "Tue Tue Tuesday 2"),
        ("MMM MMMM M LL", "Nov November 11 11"),
        ("h a K kk H", "10 PM 10 22 22"),
        ("m s S SSSS", "13 20 123 0123"),
        ("z zzzz Z X G", "UTC Coordinated Universal Time +0000 Z AD"),
        ("'it''s' yy ''", "it's 23 '"),
        ("yyyy.MM.dd_HH", "2023.11.14_22"),
    ],
)
def test_date_patterns(pattern: str, expected: str) -> None:
    assert DatePattern.parse(pattern, "k").format(TIME) == expected


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (0, "19700101 1970-01 12 AM 24"),
        (-1, "19691231 1970-01 11 PM 23"),
        (1_704_067_199_000, "20231231 2024-01 11 PM 23"),  # a Sunday: its week is that of 1 January
        (253_402_300_800_000, "100000101 10000-01 12 AM 24"),
    ],
)
def test_the_ends_of_years(time: int, expected: str) -> None:
    assert DatePattern.parse("yyyyMMdd YYYY-ww hh a kk", "k").format(time) == expected


@given(st.integers(-(10**12), 253_402_300_799_999))
def test_days_are_those_of_the_calendar(time: int) -> None:
    moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=time)
    text = DatePattern.parse("yyyy-MM-dd DDD u HH:mm:ss", "k").format(time)
    assert text == f"{moment:%Y-%m-%d %j} {moment.isoweekday()} {moment:%H:%M:%S}".zfill(len(text))
    day = milliseconds(moment.year, moment.month, moment.day)
    assert day == time // 86_400_000 * 86_400_000


def test_timestamp_router() -> None:
    one = ConnectRecord("A.orders", 1, 2, TIME, b"k", b"v", [])
    default = TimestampRouter.parse(Settings({}, ""))
    assert default.apply(one) == one._replace(topic="A.orders-20231114")
    assert default.route("A.orders") is None
    other = TimestampRouter.parse(Settings({"topic.format": "${timestamp}/${topic}/${topic}"}, ""))
    assert other.apply(one) == one._replace(topic="20231114/A.orders/A.orders")
    fixed = TimestampRouter.parse(Settings({"topic.format": "all.${topic}"}, ""))
    assert fixed.route("t") == "all.t"
    assert fixed.route("${timestamp}") is None
