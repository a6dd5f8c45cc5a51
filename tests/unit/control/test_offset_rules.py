"""Which offsets a person may set, by kind of connector."""

from __future__ import annotations

from typing import Any

import pytest

from sparkmirror.control.offset_rules import ConnectorKind, check, shown
from sparkmirror.errors import ConnectError

SOURCE = {"cluster": "A", "topic": "t", "partition": 0}
CHECKPOINT = {"group": "g", "topic": "t", "partition": 0}
HEARTBEAT = {"sourceClusterAlias": "A", "targetClusterAlias": "B"}


@pytest.mark.parametrize(
    ("kind", "partition", "offset"),
    [
        ("source", SOURCE, {"offset": 0}),
        ("source", {**SOURCE, "partition": 2**31 - 1, "more": "x"}, {"offset": 2**40, "y": 1.5}),
        ("checkpoint", CHECKPOINT, {"offset": 0}),
        ("heartbeat", HEARTBEAT, {"offset": 0}),
        ("source", None, None),
        ("source", {}, None),
        ("checkpoint", {"partition": "x"}, None),
        ("heartbeat", {"a": None}, None),
    ],
)
def test_what_may_be_set(
    kind: ConnectorKind, partition: dict[str, Any] | None, offset: dict[str, Any] | None
) -> None:
    check(kind, partition, offset)


@pytest.mark.parametrize(
    ("kind", "partition", "offset", "message"),
    [
        ("source", None, {"offset": 1}, "Source partitions may not be null"),
        ("source", {"topic": "t", "partition": 0}, {"offset": 1}, "missing the 'cluster' key"),
        ("source", {**SOURCE, "topic": 1}, {"offset": 1}, "value 1 for the 'topic' key, .* string"),
        ("source", {**SOURCE, "partition": "0"}, {"offset": 1}, "'partition' key, .* integer"),
        ("source", {**SOURCE, "partition": 1.0}, {"offset": 1}, "value 1.0 .* integer"),
        ("source", {**SOURCE, "partition": True}, {"offset": 1}, "value true .* integer"),
        ("source", {**SOURCE, "partition": 2**31}, {"offset": 1}, "integer"),
        ("source", {**SOURCE, "partition": -1}, {"offset": 1}, "'partition' key, .* negative"),
        ("source", SOURCE, {}, r"Source offset \{\} .* missing the 'offset' key"),
        ("source", SOURCE, {"offset": "1"}, "'offset' key, .* integer"),
        ("source", SOURCE, {"offset": None}, "value null .* integer"),
        ("source", SOURCE, {"offset": -1}, "'offset' key, .* negative"),
        ("source", SOURCE, {"offset": 2**63}, "'offset' key, .* integer"),
        ("checkpoint", SOURCE, {"offset": 0}, "missing the 'group' key"),
        ("checkpoint", CHECKPOINT, {"offset": 1}, "only accepted value is 0"),
        ("heartbeat", HEARTBEAT, {"offset": -1}, "only accepted value is 0"),
        ("heartbeat", {**HEARTBEAT, "z": {}}, {"offset": 0}, "field z contains MAP"),
        ("heartbeat", {"z": [1]}, None, "field z contains ARRAY"),
    ],
)
def test_what_may_not_be_set_says_why(
    kind: ConnectorKind,
    partition: dict[str, Any] | None,
    offset: dict[str, Any] | None,
    message: str,
) -> None:
    with pytest.raises(ConnectError, match=message):
        check(kind, partition, offset)


def test_values_are_shown_as_java_shows_them() -> None:
    value = {"topic": "t", "partition": None, "cluster": [True, 1e10, "x"]}
    assert shown(value) == "{cluster=[true, 1.0E10, x], partition=null, topic=t}"
