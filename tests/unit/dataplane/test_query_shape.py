"""What is asked of records, as text with the position: it comes back as it was, and texts of before stay what they were."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.plan import CopySettings, PartitionPlan
from sparkmirror.dataplane.query.columns import (
    GIVEN,
    MOST_ROWS,
    TYPES,
    Edit,
    Feed,
    Prepared,
    desk_of,
    first_number,
    row_of,
    slice_of,
)
from sparkmirror.dataplane.query.terms import QueryLimits, QueryTerms
from sparkmirror.dataplane.shape import PLAIN, Shape, has_query
from sparkmirror.errors import ConfigError
from sparkmirror.transforms.chain import TransformChain
from tests.unit.dataplane.query_desk import settings_of

CHAIN = TransformChain.parse(
    {
        "transforms": "r",
        "transforms.r.type": "RegexRouter",
        "transforms.r.regex": "A\\.(.*)",
        "transforms.r.replacement": "$1",
    }
)
PLAN = PartitionPlan("t", 0, "A.t")
names = st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,5}){0,2}:[a-z]{1,5}", fullmatch=True)
terms = st.builds(
    QueryTerms,
    st.text(min_size=1, max_size=60),
    st.lists(names, max_size=3).map(tuple),
    st.booleans(),
)
shapes = st.builds(
    Shape,
    st.sampled_from([None, CHAIN]),
    st.integers(0, 50),
    st.one_of(st.none(), terms),
    st.integers(0, 50),
).map(lambda shape: shape if shape.query is not None else replace(shape, width=0))


@given(terms)
def test_terms_survive_their_text(found: QueryTerms) -> None:
    assert QueryTerms.read(json.loads(found.text)) == found
    assert QueryTerms.read({**found.fields, "transforms": "r"}) == found


@given(terms, terms)
def test_two_queries_have_the_same_text_only_if_they_are_the_same(
    one: QueryTerms, other: QueryTerms
) -> None:
    assert (one.text == other.text) == (one == other)


def test_nothing_asked_is_no_query() -> None:
    assert QueryTerms.read({}) is None
    assert QueryTerms.read({"transform.functions": "a:b"}) is None


@given(shapes)
def test_a_shape_survives_its_text(shape: Shape) -> None:
    text = shape.text
    if text is None:
        assert shape.is_plain
        return
    again = Shape.read(text)
    assert again.text == text
    assert (again.places, again.query, again.width) == (shape.places, shape.query, shape.width)
    assert (again.chain is None) == (shape.chain is None)
    assert not again.is_plain
    assert has_query(text) == (shape.query is not None)


@given(shapes, shapes)
def test_shapes_that_do_not_do_the_same_have_other_texts(one: Shape, other: Shape) -> None:
    same = (one.chain, one.places, one.query, one.width) == (
        other.chain,
        other.places,
        other.query,
        other.width,
    )
    assert (one.text == other.text) == same
    assert (one.what == other.what) == ((one.chain, one.query) == (other.chain, other.query))


def test_texts_without_a_query_are_those_of_before() -> None:
    """A position that was written by a version without queries goes on under its numbering."""
    assert CHAIN is not None
    assert Shape(CHAIN).text == CHAIN.text
    assert Shape(None, 6).text == '{"target.partitions":"6"}'
    assert Shape(CHAIN, 6).text == json.dumps(
        {**json.loads(CHAIN.text), "target.partitions": "6"}, sort_keys=True, separators=(",", ":")
    )
    assert PLAIN.text is None
    for text in (CHAIN.text, Shape(None, 6).text, Shape(CHAIN, 6).text):
        assert text is not None
        assert Shape.read(text).query is None
        assert not has_query(text)


def test_a_text_with_a_query_stays_what_it_is() -> None:
    """It is in the offsets topics of those who run queries."""
    shape = Shape(None, 0, QueryTerms("SELECT 1", ("a.b:c", "d:e"), True), 3)
    assert shape.text == (
        '{"transform.functions":"a.b:c,d:e","transform.nondeterministic":"allow",'
        '"transform.partitions":"3","transform.sql":"SELECT 1"}'
    )


@pytest.mark.parametrize("text", ["", "[", "7", '{"target.partitions":"x"}'])
def test_what_is_no_shape_is_told(text: str) -> None:
    with pytest.raises(ConfigError):
        Shape.read(text)


def test_a_chain_may_speak_of_queries_without_having_one() -> None:
    shape = Shape.read('{"transforms.x.note":"\\"transform.sql\\":"}')
    assert shape.query is None
    assert not has_query('{"transforms.x.note":"\\"transform.sql\\":"}')
    assert not has_query(None)


def test_only_what_decides_the_outcome_is_in_the_shape() -> None:
    settings = settings_of("SELECT *")
    plan = replace(PLAN, queried=True, width=4)
    shape = Shape.of(plan, settings)
    assert (shape.query, shape.width) == (QueryTerms("SELECT *"), 4)
    query = settings.query
    assert query is not None
    slow = replace(settings, query=replace(query, limits=QueryLimits(interval=9, patience=9)))
    assert Shape.of(plan, slow).text == shape.text
    assert Shape.of(replace(plan, task=7), settings).text == shape.text


def test_topics_that_are_not_asked_keep_to_the_batch_path() -> None:
    assert Shape.of(replace(PLAN, width=4), settings_of("SELECT *")) == PLAIN
    assert Shape.of(replace(PLAN, queried=True, width=4), CopySettings()) == PLAIN


# -- numbers of records -------------------------------------------------------------------------------


@given(st.integers(0, (1 << 16) - 1), st.integers(0, 1 << 40), st.integers(0, MOST_ROWS - 1))
def test_a_number_tells_desk_slice_and_row(desk: int, piece: int, row: int) -> None:
    number = first_number(desk, piece) + row
    assert 0 <= number < 1 << 63
    assert desk_of(number) == desk
    assert slice_of(number) == slice_of(first_number(0, piece))
    assert row_of(number) == row


@given(st.integers(0, 100), st.integers(0, (1 << 27) - 2))
def test_slices_of_a_desk_follow_each_other(desk: int, piece: int) -> None:
    assert slice_of(first_number(desk, piece)) == piece
    assert first_number(desk, piece) + MOST_ROWS == first_number(desk, piece + 1)


@given(st.integers(0, 99), st.frozensets(st.sampled_from(sorted(TYPES))), st.data())
def test_what_is_known_of_a_query_survives_its_fields(
    number: int, needs: frozenset[str], data: st.DataObject
) -> None:
    gives = data.draw(st.frozensets(st.sampled_from(GIVEN)))
    feed = Feed(needs, {"value": ("$.a", "$.b.c")}, frozenset({"key"}))
    edits = {"value": Edit("key", (("a+", "b"), ("b", r"\0")))}
    prepared = Prepared(number, needs, gives, feed, edits)
    assert Prepared.read(json.loads(json.dumps(prepared.fields))) == prepared
