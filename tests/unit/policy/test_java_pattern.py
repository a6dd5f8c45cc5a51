"""Patterns of users match what they say, and hold nobody up."""

from __future__ import annotations

import pickle
import re
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import ConfigError
from sparkmirror.policy.filters import TopicFilter, compile_java_patterns
from sparkmirror.policy.java_pattern import LONGEST_S, JavaPattern
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
        TopicFilter([SLOW], []).matches(NAME)
    assert time.monotonic() - begin < 5 * LONGEST_S
    assert f"topics has the pattern '{SLOW}', which takes longer than 1 s" in str(refused.value)
    assert "a+x instead of (a+)+x" in str(refused.value)


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
