"""Chains of transforms: what is read from a config, what a record goes through, and what a topic's name alone decides."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import ConfigError
from sparkmirror.transforms.chain import TransformChain
from sparkmirror.transforms.record import ConnectRecord, Headers

TRANSFORMS = "org.apache.kafka.connect.transforms."
RENAME = {
    "transforms.r.type": f"{TRANSFORMS}RegexRouter",
    "transforms.r.regex": "A\\.(.*)",
    "transforms.r.replacement": "$1",
}
BY_DAY = {"transforms.t.type": "TimestampRouter"}
HEADER = {
    "transforms.h.type": "InsertHeader",
    "transforms.h.header": "via",
    "transforms.h.value.literal": "eu",
}
DROP = {"transforms.d.type": "DropHeaders", "transforms.d.headers": "x, y"}
FILTER = {"transforms.f.type": f"{TRANSFORMS}Filter"}
ORDERS = {
    "predicates.orders.type": f"{TRANSFORMS}predicates.TopicNameMatches",
    "predicates.orders.pattern": "(A\\.)?orders",
}
DEAD = {"predicates.dead.type": "RecordIsTombstone"}
MARKED = {"predicates.marked.type": "HasHeaderKey", "predicates.marked.name": "x"}
ALL = {**RENAME, **BY_DAY, **HEADER, **DROP, **FILTER, **ORDERS, **DEAD, **MARKED}


def chain_of(steps: str, **more: str) -> TransformChain:
    """The chain of these steps: a step `f/dead` has a predicate, `f/!dead` its opposite."""
    props: dict[str, str] = {**ALL, "predicates": "orders,dead,marked"}
    names = []
    for step in steps.split():
        name, _, predicate = step.partition("/")
        names.append(name)
        if predicate:
            props[f"transforms.{name}.predicate"] = predicate.removeprefix("!")
            props[f"transforms.{name}.negate"] = str(predicate.startswith("!")).lower()
    props["transforms"] = ",".join(names)
    chain = TransformChain.parse(props | more)
    assert chain is not None
    return chain


def record(
    topic: str = "A.orders", value: bytes | None = b"v", headers: Headers | None = None
) -> ConnectRecord:
    return ConnectRecord(topic, 3, 17, 1_700_000_000_000, b"k", value, headers or [])


# -- what a record goes through -------------------------------------------------------------------


def test_transforms_apply_in_their_order() -> None:
    after = chain_of("r t h").apply(record())
    assert after == record("orders-20231114", headers=[("via", b"eu")])
    after = chain_of("t r").apply(record())
    assert after == record("orders-20231114")


def test_a_dropped_record_goes_no_further() -> None:
    assert chain_of("f h").apply(record()) is None
    assert chain_of("h f").apply(record()) is None


def test_predicates_see_what_earlier_transforms_made() -> None:
    assert chain_of("d f/marked").apply(record(headers=[("x", None)])) == record(headers=[])
    assert chain_of("f/marked d").apply(record(headers=[("x", None)])) is None
    renamed = {"predicates.orders.pattern": "orders"}
    assert chain_of("r f/orders", **renamed).apply(record()) is None
    assert chain_of("f/orders r", **renamed).apply(record()) == record("orders")


@pytest.mark.parametrize(
    ("steps", "one", "is_kept"),
    [
        ("f/dead", record(value=None), False),
        ("f/dead", record(value=b""), True),
        ("f/!dead", record(value=None), True),
        ("f/!dead", record(), False),
        ("f/marked", record(headers=[("a", b"1"), ("x", None)]), False),
        ("f/marked", record(headers=[("X", b"1")]), True),
        ("f/!marked", record(), False),
        ("f/orders", record("A.orders"), False),
        ("f/orders", record("A.orders2"), True),
        ("f/!orders", record("A.orders"), True),
    ],
)
def test_predicates(steps: str, one: ConnectRecord, is_kept: bool) -> None:
    assert (chain_of(steps).apply(one) is not None) == is_kept


def test_headers_are_added_behind_the_others_and_dropped_wherever_they_stand() -> None:
    rows: Headers = [("x", b"1"), ("via", b"2"), ("y", None), ("x", None)]
    after = chain_of("d h").apply(record(headers=rows))
    assert after == record(headers=[("via", b"2"), ("via", b"eu")])
    assert rows == [("x", b"1"), ("via", b"2"), ("y", None), ("x", None)]


def test_what_no_transform_changes_is_the_same_object() -> None:
    """So that its batch need not be written anew."""
    one = record("B.things", headers=[("z", b"")])
    assert chain_of("r d f/dead").apply(one) is one


# -- what the name decides ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "topic", "target"),
    [
        ("r", "A.orders", "orders"),
        ("r h", "A.orders", "orders"),
        ("h r/orders", "A.orders", "orders"),
        ("h/dead r", "A.orders", "orders"),
        ("f", "A.orders", "A.orders"),
        ("h r/orders", "A.things", "A.things"),
        ("t", "A.orders", None),
        ("r/dead", "A.orders", None),
        ("r/marked", "A.orders", None),
        ("r/dead h", "B.orders", "B.orders"),  # whatever the record is, the name does not match
        ("t/!orders h", "A.orders", "A.orders"),
    ],
)
def test_where_all_records_of_a_topic_go(steps: str, topic: str, target: str | None) -> None:
    chain = chain_of(steps)
    narrowed = chain.on(topic)
    assert narrowed is not None
    assert narrowed.target == target
    assert chain.target(topic) == target


@pytest.mark.parametrize(
    ("steps", "topic"),
    [("r", "B.orders"), ("h/orders", "A.things"), ("f/!orders", "A.orders"), ("t/orders", "x")],
)
def test_topics_that_nothing_is_done_to(steps: str, topic: str) -> None:
    assert chain_of(steps).on(topic) is None
    assert chain_of(steps).target(topic) == topic


def test_renaming_alone_is_nothing_to_be_done_record_by_record() -> None:
    chain = chain_of("r").on("A.orders")
    assert chain is not None
    assert (chain.topic, chain.steps) == ("orders", ())


_steps = st.lists(
    st.sampled_from(
        ["r", "t", "h", "d", "f/dead", "f/marked", "h/orders", "r/orders", "d/!marked", "t/!orders"]
    ),
    min_size=1,
    max_size=5,
    unique_by=lambda step: step[0],
).map(" ".join)
_records = st.builds(
    record,
    st.sampled_from(["A.orders", "A.things", "orders", "A.orders-20231114"]),
    st.sampled_from([None, b"", b"v"]),
    st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from([None, b"1"])), max_size=3),
)


@given(_steps, _records)
def test_what_the_name_decides_is_what_every_record_gets(steps: str, one: ConnectRecord) -> None:
    chain = chain_of(steps)
    expected = chain.apply(one)
    narrowed = chain.on(one.topic)
    if narrowed is None:
        assert expected == one
        return
    after = narrowed.apply(one._replace(topic=narrowed.topic))
    assert after == expected
    if narrowed.target is not None and after is not None:
        assert after.topic == narrowed.target


@given(_steps, _records)
def test_a_chain_travels_and_is_read_again(steps: str, one: ConnectRecord) -> None:
    chain = chain_of(steps)
    again = TransformChain.read(chain.text)
    assert again == chain
    assert pickle.loads(pickle.dumps(chain)) == chain  # noqa: S301 - our own
    assert again is not None
    assert again.apply(one) == chain.apply(one)


def test_the_text_has_nothing_but_transforms_in_it() -> None:
    chain = TransformChain.parse({"name": "c", "x.password": "p", "transforms": "h", **HEADER})
    assert chain is not None
    assert "password" not in chain.text
    assert '"transforms.h.header":"via"' in chain.text


# -- what is wrong --------------------------------------------------------------------------------


@pytest.mark.parametrize("props", [{}, {"transforms": ""}, {"transforms": " "}, {"name": "x"}])
def test_without_transforms_there_is_no_chain(props: Mapping[str, str]) -> None:
    assert TransformChain.parse(props) is None


@pytest.mark.parametrize(
    ("props", "words"),
    [
        ({"transforms": "a"}, "transforms.a.type is missing"),
        ({"transforms": "a", "transforms.a.type": ""}, "transforms.a.type is empty"),
        ({"transforms": "h,h", **HEADER}, "transforms=h,h names one twice"),
        ({"transforms": "h,,d", **HEADER, **DROP}, "has an empty name"),
        ({"transforms": "a", "transforms.a.type": "com.x.Mask"}, "com.x.Mask is not known"),
        (
            {"transforms": "a", "transforms.a.type": f"{TRANSFORMS}InsertField$Value"},
            "works on structured records",
        ),
        ({"transforms": "a", "transforms.a.type": "ReplaceField$Key"}, "structured"),
        ({"transforms": "a", "transforms.a.type": "RegexRouter"}, "transforms.a.regex is missing"),
        (
            {"transforms": "a", "transforms.a.type": "RegexRouter", "transforms.a.regex": "("},
            "transforms.a.regex=(",
        ),
        (
            {"transforms": "a", "transforms.a.type": "RegexRouter", "transforms.a.regex": "\\pL"},
            "the character property",
        ),
        ({"transforms": "r", **RENAME, "transforms.r.replacement": "$2"}, "there is no group 2"),
        ({"transforms": "r", **RENAME, "transforms.r.replacement": "${n}"}, "no group n"),
        ({"transforms": "r", **RENAME, "transforms.r.replacement": "a$"}, "needs its number"),
        ({"transforms": "r", **RENAME, "transforms.r.replacement": "a\\"}, "single backslash"),
        (
            {"transforms": "t", **BY_DAY, "transforms.t.timestamp.format": "yyyyQ"},
            "Q means nothing",
        ),
        (
            {"transforms": "t", **BY_DAY, "transforms.t.timestamp.format": "'x"},
            "quote is not closed",
        ),
        ({"transforms": "t", **BY_DAY, "transforms.t.topic.format": ""}, "topic.format is empty"),
        ({"transforms": "h", "transforms.h.type": "InsertHeader"}, "value.literal is missing"),
        ({"transforms": "d", "transforms.d.type": "DropHeaders"}, "headers is missing"),
        ({"transforms": "d", **DROP, "transforms.d.headers": " "}, "headers is empty"),
        ({"transforms": "f", **FILTER, "transforms.f.predicate": "p"}, "is not one of predicates"),
        ({"transforms": "f", **FILTER, "transforms.f.negate": "true"}, "no transforms.f.predicate"),
        ({"transforms": "f", **FILTER, "predicates": "p"}, "predicates.p.type is missing"),
        (
            {"transforms": "f", **FILTER, "predicates": "p", "predicates.p.type": "Maybe"},
            "predicates.p.type=Maybe is not known",
        ),
        (
            {
                "transforms": "f",
                **FILTER,
                "predicates": "dead",
                **DEAD,
                "transforms.f.predicate": "dead",
                "transforms.f.negate": "perhaps",
            },
            "neither true nor false",
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_key(props: Mapping[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TransformChain.parse(props)
    assert words in caught.value.message
    assert caught.value.remedy


def test_a_text_that_is_no_chain_is_told() -> None:
    with pytest.raises(ConfigError):
        TransformChain.read("{")
