"""Patterns of users match what they say, and hold nobody up."""

from __future__ import annotations

import pickle
import re
import threading
import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import ConfigError
from sparkmirror.policy.filters import TopicFilter, compile_java_patterns
from sparkmirror.policy.java_pattern import LONGEST_S, JavaPattern, PatternTooSlow
from sparkmirror.policy.java_regex import UnsupportedPattern, translate
from sparkmirror.transforms.chain import TransformChain

SLOW, NAME = "(a|aa)+[xy]", "a" * 60 + "b"

_atoms = st.sampled_from(
    [
        "a",
        "B",
        "1",
        ".",
        "-",
        r"\.",
        r"\d",
        r"\w",
        r"\S",
        "[a-c]",
        "[^b]",
        "[-.]",
        r"\b",
        "(?i)",
        "^",
        "$",
        "|",
        "é",
        r"\x41",
    ]
)
_expressions = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}", "*?", "++"])).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({''.join(parts)})"),
        st.lists(inner, min_size=1, max_size=3).map("".join),
        inner.map(lambda part: f"(?={part})"),
        inner.map(lambda part: f"(?:{part}|a)"),
    ),
    max_leaves=6,
)


@given(_expressions, st.text("aAbB1.-_é\n", max_size=6))
def test_it_matches_what_the_standard_library_does(expression: str, text: str) -> None:
    """An engine with a time limit, whose answers are those of the one that the translation was made for."""
    try:
        pattern = JavaPattern(expression, "topics")
    except (UnsupportedPattern, re.error):
        return
    expected = re.compile(translate(expression), re.ASCII)
    assert pattern.matches(text) == (expected.fullmatch(text) is not None)
    assert pattern.replace_first(text, lambda found: "!") == expected.sub("!", text, count=1)
    assert (pattern.groups, pattern.groupindex) == (expected.groups, expected.groupindex)


def test_a_pattern_that_backtracks_is_named_with_its_key_and_a_remedy() -> None:
    begin = time.monotonic()
    with pytest.raises(ConfigError) as refused:
        compile_java_patterns([SLOW], "topics").matches(NAME)
    assert time.monotonic() - begin < 5 * LONGEST_S
    assert f"topics has the pattern '{SLOW}', which takes longer than 1 s" in str(refused.value)
    assert "a+x instead of (a+)+x" in str(refused.value)


@pytest.mark.parametrize(("include", "exclude"), [([SLOW], []), ([".*"], [SLOW])])
def test_a_name_on_which_a_pattern_takes_too_long_is_left_out(
    include: list[str], exclude: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Anybody may create a topic or a group: one with an odd name must not stop the others."""
    names = TopicFilter(include, exclude)
    assert not names.matches(NAME)
    assert f"{NAME} is left out" in caplog.text
    assert names.matches("ax" if include == [SLOW] else "orders")


@pytest.mark.parametrize(
    "bomb",
    [
        "a{100000000}",
        "((a{1000}){1000}){1000}",
        "(?:a{10000}){10000}",
        "[ab]{5000000,}",
        "(ab?){200}{200}",
        "a{" + "9" * 5000 + "}",
        "a" * 300_000,
    ],
)
def test_a_pattern_that_would_take_much_memory_is_refused(bomb: str) -> None:
    """The engine writes out what is to come so many times at least."""
    tracemalloc.start()
    begin = time.monotonic()
    try:
        with pytest.raises(ConfigError, match=r"too large|more than 10000 times|repeat"):
            compile_java_patterns(["orders", bomb], "topics")
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()
    assert time.monotonic() - begin < 5


@pytest.mark.parametrize(
    "plain", ["[0-9]{4}", "(a{1,30}){2}", "(?:[a-f0-9]{8}-){4}x", "a{0,100000}", r"\{9999999\}"]
)
def test_counts_as_people_write_them_are_taken(plain: str) -> None:
    compile_java_patterns([plain], "groups")


def test_classes_are_looked_at_in_no_time() -> None:
    ranges = "".join(f"{chr(0x100 + n)}-\ud7ff" for n in range(2000))
    begin = time.monotonic()
    assert compile_java_patterns([f"[{ranges}]+"], "topics").matches("\u0100\u0102")
    assert time.monotonic() - begin < 2


def test_other_threads_run_while_a_pattern_backtracks() -> None:
    """Heartbeats of the group, REST: with Python's own engine they stand still."""
    over, refused = threading.Event(), threading.Event()

    def match() -> None:
        try:
            compile_java_patterns([SLOW], "groups").matches(NAME)
        except ConfigError:
            refused.set()
        finally:
            over.set()

    thread = threading.Thread(target=match)
    thread.start()
    turns, longest, before = 0, 0.0, time.monotonic()
    while not over.wait(0.005):
        now = time.monotonic()
        longest, before, turns = max(longest, now - before), now, turns + 1
    thread.join()
    assert refused.is_set()
    assert turns > 5
    assert longest < LONGEST_S / 2


def test_a_router_that_backtracks_is_refused_as_well() -> None:
    props = {
        "transforms": "r",
        "transforms.r.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.r.regex": SLOW,
        "transforms.r.replacement": "y",
    }
    chain = TransformChain.parse(props)
    assert chain is not None
    with pytest.raises(ConfigError, match=r"transforms\.r\.regex has the pattern"):
        chain.on(NAME)


def test_it_travels_to_executors() -> None:
    pattern = pickle.loads(pickle.dumps(JavaPattern("a(b)+", "topics")))  # noqa: S301 - our own
    assert pattern.matches("abb")
    assert not pattern.matches("a")


def test_what_is_replaced_is_looked_for_in_bounded_time() -> None:
    began = time.monotonic()
    with pytest.raises(PatternTooSlow, match="takes longer than 1 s"):
        JavaPattern(SLOW, "transforms.r.regex").replace_first(NAME, lambda _: "")
    assert time.monotonic() - began < 10
