"""Whether the slots of a Spark session are enough for queries."""

from __future__ import annotations

from typing import Any

import pytest

from sparkmirror.errors import SparkError
from sparkmirror.spark.executors import Executors
from sparkmirror.spark.session import SparkSession

CLUSTER = {"spark.master": "spark://m:7077"}
DYNAMIC = {**CLUSTER, "spark.dynamicAllocation.enabled": "true"}
MOST = "spark.dynamicAllocation.maxExecutors"


@pytest.mark.parametrize(
    ("settings", "slots", "width"),
    [
        (CLUSTER, 1, None),
        (CLUSTER, 8, 2),
        (DYNAMIC, 0, 2),
        (DYNAMIC, 1, 2),
        ({**DYNAMIC, MOST: "20"}, 0, 5),
        ({**DYNAMIC, MOST: "1"}, 0, None),
    ],
)
def test_queries_need_a_slot_beside_the_copy_that_is_there_or_may_come(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], slots: int, width: int | None
) -> None:
    """With dynamic allocation executors come only once a job waits for them."""
    session = SparkSession(settings)
    context: Any = object()

    def engine(_context: object, _listener: object, width: int, **_: object) -> int:
        return width

    monkeypatch.setattr("sparkmirror.dataplane.query.engine.QueryEngine", engine)
    monkeypatch.setattr(session, "_context", context)
    monkeypatch.setattr(session, "_listening", lambda _: None)
    monkeypatch.setattr(session, "executors", lambda: Executors(slots, frozenset("0")))
    if width is None:
        with pytest.raises(SparkError, match=r"queries need another one"):
            _ = session.queries
    else:
        found: Any = session.queries
        assert found == width
    monkeypatch.setattr(session, "_context", None)
