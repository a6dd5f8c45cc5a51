"""A source connector that its clusters do not let in any more fails, so that it is started again and reads passwords anew."""

from __future__ import annotations

import pytest

from sparkmirror.config.worker import WorkerConfig
from sparkmirror.connectors.source import SourceConnector, placed_note
from sparkmirror.errors import AccessFailed, ConnectionFailed, SparkMirrorError

BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
WORKER = WorkerConfig.parse(
    {
        "bootstrap.servers": "127.0.0.1:1",
        "group.id": "g",
        "config.storage.topic": "c",
        "offset.storage.topic": "o",
        "status.storage.topic": "s",
        "key.converter": BYTES,
        "value.converter": BYTES,
    }
)
CONFIG = {
    "name": "msc",
    "connector.class": "MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "127.0.0.1:1",
    "target.cluster.bootstrap.servers": "127.0.0.1:1",
}


class Nobody:
    def request_task_reconfiguration(self) -> None: ...
    def fail(self, error: SparkMirrorError) -> None: ...
    def note(self, text: str) -> None: ...


def test_the_second_refusal_in_a_row_fails_the_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    connector = SourceConnector(CONFIG, Nobody(), WORKER)
    outcomes: list[SparkMirrorError | None] = []

    def refresh() -> bool:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return False

    monkeypatch.setattr(connector._topics, "refresh", refresh)
    refused, broken = AccessFailed("wrong password"), ConnectionFailed("gone")
    outcomes[:] = [refused, None, refused, broken]
    for _ in range(4):
        connector._look()
    outcomes[:] = [refused]
    with pytest.raises(AccessFailed):
        connector._look()


def test_placed_topics_are_noted_and_not_all_of_very_many() -> None:
    assert placed_note({}) == ""
    assert "number of partitions: a (12). Group offsets of these topics" in placed_note({"a": 12})
    many = placed_note({f"t{n:03}": 6 for n in range(50)})
    assert "t019 (6) and 30 more." in many


@pytest.mark.parametrize("may_vary", [True, False])
def test_that_records_may_come_twice_is_noted(may_vary: bool) -> None:
    said: list[str] = []

    class Listening(Nobody):
        def note(self, text: str) -> None:
            said.append(text)

    varies = {"transform.nondeterministic": "allow"} if may_vary else {}
    query = {"transform.sql": "SELECT value FROM records", **varies}
    SourceConnector({**CONFIG, **query}, Listening(), WORKER)._note()
    SourceConnector(CONFIG, Listening(), WORKER)._note()
    twice = (
        "Records may come twice after a failure: the query may give another answer to the same record "
        "(transform.nondeterministic=allow)."
    )
    assert said == [twice if may_vary else "", ""]
