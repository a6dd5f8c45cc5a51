"""Filters: Java patterns on whole names, and which topics a flow copies."""

from __future__ import annotations

import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import ConfigError
from sparkmirror.policy.filters import (
    ConfigPropertyFilter,
    GroupFilter,
    TopicFilter,
    compile_java_patterns,
    should_replicate_topic,
)
from sparkmirror.policy.naming import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    load_policy,
)


def matching(pattern: str, *names: str) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = compile_java_patterns([pattern], "topics")
    return [name for name in names if compiled.matches(name)]


# Filters


def test_a_name_matches_itself_only() -> None:
    names = TopicFilter(["topic1"], [])
    assert names.matches("topic1")
    assert not names.matches("topic2")
    assert not names.matches("topic10")
    assert not names.matches("my-topic1")


def test_no_pattern_matches_nothing_not_even_the_empty_name() -> None:
    assert not TopicFilter([], []).matches("topic1")
    assert not TopicFilter([], []).matches("")


def test_everything_matches_everything() -> None:
    assert all(TopicFilter([".*"], []).matches(name) for name in ("topic1", "", "a.b"))


def test_each_pattern_of_a_list_counts() -> None:
    names = TopicFilter(["topic1", "topic2"], [])
    assert names.matches("topic1")
    assert names.matches("topic2")
    assert not names.matches("topic3")


def test_exclusion_wins() -> None:
    names = TopicFilter([".*"], [r"mm2.*\.internal", r".*\.replica", "__.*"])
    assert names.matches("orders")
    for name in ("mm2-offsets.A.internal", "x.replica", "__consumer_offsets"):
        assert not names.matches(name)


def test_groups_and_properties_are_filtered_alike() -> None:
    assert GroupFilter(["group1"], []).matches("group1")
    assert not GroupFilter(["group1"], []).matches("group2")
    properties = ConfigPropertyFilter(["prop2", r"min\..*"])
    assert properties.matches("prop1")
    assert not properties.matches("prop2")
    assert not properties.matches("min.insync.replicas")
    assert ConfigPropertyFilter([]).matches("anything")


def test_filters_are_values() -> None:
    assert TopicFilter(["a"], ["b"]) == TopicFilter(["a"], ["b"])
    assert TopicFilter(["a"], ["b"]) != TopicFilter(["b"], ["b"])


def test_patterns_of_a_list_are_one_expression_as_in_java() -> None:
    grouped = compile_java_patterns(["(orders", "payments)-eu"], "topics")
    assert grouped.matches("payments-eu")
    assert not grouped.matches("orders")
    case = compile_java_patterns(["(?i)a", "b"], "topics")
    assert case.matches("A")
    assert case.matches("B")


# Java's way of writing


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        (r"a\.b", ["a.b"], ["axb"]),
        (r"\Qa.b\E", ["a.b"], ["axb"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"x\Q(\Ey", ["x(y"], ["xy"]),
        (r"[\Q]\E]", ["]"], ["Q"]),
        (r"\\Q", ["\\Q"], ["Q"]),
        (r"a\z", ["a"], ["a\n"]),
        (r"a\Z\n?", ["a", "a\n"], ["a\n\n"]),
        (r"a$\r?\n?", ["a", "a\n", "a\r\n"], ["b"]),
        (r"a.b", ["axb"], ["a\nb", "a\u2028b", "a\rb"]),
        (r"(?<first>a|b)-\k<first>", ["a-a", "b-b"], ["a-b"]),
        (r"(a|b)\1", ["aa", "bb"], ["ab"]),
        (r"\x41\x{42}\u0043", ["ABC"], ["abc"]),
        (r"\x{2e}", ["."], ["a"]),
        (r"(?i)orders", ["ORDERS", "Orders"], ["order"]),
        (r"x(?i:a)", ["xA", "xa"], ["Xa"]),
        (r"(?i)k", ["K"], ["\u212a"]),
        (r"\w+", ["a_1"], ["é"]),
        (r"\d", ["1"], ["\u0661"]),
        (r"a++b", ["aab"], ["b"]),
        (r"(?>a|ab)c", ["ac"], ["abc"]),
        (r"(?<=a)b|(?!x).", ["y"], ["x"]),
        (r"[\w-.]+", ["a-b.c"], ["a b"]),
        (r"[]a]", ["]", "a"], ["b"]),
        (r"[^]a]", ["b"], ["]", "a"]),
        (r"[a-]", ["a", "-"], ["b"]),
        (r"[+--]", ["+", ",", "-"], ["."]),
        (r"[a&b|]", ["&", "|"], ["c"]),
        (r"a{2}", ["aa"], ["a"]),
        (r"a\{2\}", ["a{2}"], ["aa"]),
        (r"\bx\b", ["x"], ["xx"]),
        (r"\_\-\:", ["_-:"], ["_"]),
        (r"a]}", ["a]}"], ["a"]),
    ],
)
def test_java_patterns_mean_what_they_mean_in_java(
    pattern: str, yes: list[str], no: list[str]
) -> None:
    assert matching(pattern, *yes, *no) == yes


@pytest.mark.parametrize(
    ("pattern", "construct"),
    [
        (r"\p{Alpha}+", r"\p{Alpha}"),
        (r"\P{L}", r"\P{L}"),
        (r"[\p{L}]", r"\p{L}"),
        (r"[a-z&&[^b]]", "&&"),
        (r"[a[b]]", "class within a class"),
        (r"\h", r"\h"),
        (r"\H", r"\H"),
        (r"\v", r"\v"),
        (r"\V", r"\V"),
        (r"\R", r"\R"),
        (r"\X", r"\X"),
        (r"\Ga", r"\G"),
        (r"\N{DIGIT ONE}", r"\N{DIGIT ONE}"),
        (r"\cA", r"\c"),
        (r"\e", r"\e"),
        (r"\07", r"\0"),
        (r"\b{g}", r"\b{"),
        (r"a(?i)b", "(?i)"),
        (r"(?d)a", "(?d)"),
        (r"(?U)a", "(?U)"),
        (r"(?s)a", "(?s)"),
        (r"(?x) a", "(?x)"),
        (r"(?m:a)", "(?m:"),
        (r"(?P<n>a)", "(?P"),
        (r"(?#a)", "(?"),
        (r"(?<=a*)b", "lookbehind"),
        (r"()()()()()()()()()()\10", r"\10"),
        (r"\y", r"\y"),
        (r"a\E", r"\E"),
        (r"[\b]", r"\b"),
        (r"\x{110000}", "is no character"),
        ("a\\", "single backslash"),
        ("[a", "not closed"),
        ("[", "not closed"),
        ("a{", "{ is not followed"),
        ("a{,2}", "{ is not followed"),
        ("*", "nothing before"),
        ("*-orders", "nothing before"),
        ("(a", "missing )"),
        ("a)", "unbalanced"),
        ("[b-a]", "bad character range"),
        ("[a-\\d]", "bad character range"),
    ],
)
def test_what_python_cannot_say_is_refused_by_name(pattern: str, construct: str) -> None:
    with pytest.raises(ConfigError) as raised:
        compile_java_patterns(["fine", pattern], "topics.exclude")
    error = raised.value
    assert "topics.exclude" in error.message
    assert repr(pattern) in error.message
    assert construct in error.message
    assert error.remedy


def test_the_star_of_a_shell_gets_the_right_remedy() -> None:
    with pytest.raises(ConfigError, match=r"write \.\* instead of \*"):
        TopicFilter(["*"], [])


@given(st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF)), st.text(max_size=8))
def test_a_quoted_text_matches_itself_only(text: str, other: str) -> None:
    quoted = compile_java_patterns([f"\\Q{text.replace(chr(92), '')}\\E"], "topics")
    assert quoted.matches(text.replace("\\", ""))
    assert bool(quoted.matches(other)) is (other == text.replace("\\", ""))


_NAME = st.text("abcXYZ019._-", min_size=1, max_size=12)


@given(st.lists(_NAME, max_size=4), st.lists(_NAME, max_size=4), _NAME)
def test_names_as_patterns_select_at_least_themselves(
    include: list[str], exclude: list[str], name: str
) -> None:
    def hit(patterns: list[str]) -> bool:
        return any(re.fullmatch(pattern, name) for pattern in patterns)

    expected = hit(include) and not hit(exclude)
    assert TopicFilter(include, exclude).matches(name) is expected


# Which topics a flow copies


def replicated(
    topic: str,
    *,
    policy: DefaultReplicationPolicy | None = None,
    include: tuple[str, ...] = (".*",),
    heartbeats: bool = True,
) -> bool:
    return should_replicate_topic(
        policy or DefaultReplicationPolicy(), TopicFilter(include, ()), heartbeats, "target", topic
    )


def test_heartbeats_are_copied_whatever_the_filter_says() -> None:
    for include in ((".*",), ()):
        assert replicated("heartbeats", include=include)
        assert replicated("us-west.heartbeats", include=include)


def test_with_another_separator_a_dotted_name_is_no_heartbeats_topic() -> None:
    policy = load_policy(
        "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
        {"replication.policy.separator": "_"},
    )
    assert not should_replicate_topic(
        policy, TopicFilter((), ()), True, "target", "us-west.heartbeats"
    )


def test_heartbeats_follow_the_filter_when_asked_to() -> None:
    assert not replicated("heartbeats", include=(), heartbeats=False)
    assert replicated("heartbeats", include=("heartbeats",), heartbeats=False)


def test_cycles_are_not_copied() -> None:
    assert not replicated("target.topic1")
    assert not replicated("target.heartbeats")
    assert not replicated("source.target.topic1")
    assert replicated("topic1")
    assert replicated("source.topic1")


def test_internal_topics_are_not_copied_whatever_the_filter_says() -> None:
    for topic in ("mm2-offsets.A.internal", "__consumer_offsets", "A.checkpoints.internal", ".x"):
        assert not replicated(topic)
    assert replicated("billing.internal")


def test_the_identity_policy_copies_names_that_look_like_cycles() -> None:
    policy = IdentityReplicationPolicy()
    policy.configure({"source.cluster.alias": "source"})
    for topic in ("target.topic1", "topic1", "source.target.topic1", "heartbeats"):
        assert replicated(topic, policy=policy)
    assert replicated("othersource.heartbeats", policy=policy)
    assert not replicated("target.heartbeats", policy=policy)
    assert not replicated("source.target.heartbeats", policy=policy)
