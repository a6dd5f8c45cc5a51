"""Targets that a query names and that are not there as they should be: told at once, and opened when they are."""

from __future__ import annotations

import pytest

from sparkmirror.errors import BrokerError
from sparkmirror.kafka.records import NewRecord
from tests.unit.dataplane.query_desk import Query, QueryCopier, settings_of
from tests.unit.dataplane.two_clusters import World, simulate
from tests.unit.making import batch

QUERIES = {"last": Query(frozenset({"partition"}), lambda row: {"partition": 2})}


def test_a_copy_that_was_not_widened_yet_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source has three partitions by now, its copy one: others of the task must not stand still for that."""
    simulate(monkeypatch)
    world = World()
    world.log.add(batch([NewRecord(0, 7, b"k", b"v", [])]))
    copy = QueryCopier(world, settings_of("last"), QUERIES, width=3)
    copy.work()
    error = copy.error
    assert isinstance(error, BrokerError)
    assert error.retriable
    assert "topic A.t on cluster B" in str(error)
    assert "has 1 partition(s), and a record goes to partition 2" in str(error)
    world.target.create("A.t", 3)
    QueryCopier(world, settings_of("last"), QUERIES, width=3).converge()
    assert [row[2] for row in world.target.logs["A.t", 2].contents()] == [b"v"]
