"""Topics that replication itself needs: created where they are missing, also when they are deleted later."""

from __future__ import annotations

import logging
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparkmirror.connectors import metadata
from sparkmirror.connectors.source_topics import SourceTopics
from sparkmirror.errors import BrokerError
from sparkmirror.kafka import messages
from sparkmirror.kafka.admin import NewTopic

MAP, SYNCS = "mm2-offset-map.A.internal", "mm2-offset-syncs.B.internal"


class Creating:
    """Creates topics on two clusters, but for those that it refuses."""

    def __init__(self) -> None:
        self.source, self.target = SimpleNamespace(topics={}), SimpleNamespace(topics={})
        self.refused: dict[str, int] = {}
        self.asked: list[str] = []
        config = SimpleNamespace(
            source_alias="A",
            emit_offset_syncs=True,
            offset_syncs_location="source",
            offset_syncs_topic=SYNCS,
            offset_syncs_replication_factor=1,
            offset_syncs_replication_factor_explicit=True,
        )
        settings = SimpleNamespace(
            config=config,
            progress_replication_factor=1,
            may_lower_progress_factor=False,
            copy=SimpleNamespace(offset_map_topic=MAP),
        )
        clusters = cast(Any, self.source), cast(Any, self.target)
        self.topics = SourceTopics(
            cast(Any, settings), *clusters, threading.Event(), cast(Any, None)
        )

    def create(
        self, cluster: Any, topics: list[NewTopic], *, may_lower_factor: bool
    ) -> dict[str, BrokerError]:
        (topic,) = topics
        self.asked.append(topic.name)
        if code := self.refused.get(topic.name):
            return {topic.name: messages.broker_error(code, f"Creating topic {topic.name}")}
        cluster.topics[topic.name] = None
        return {}

    def look(self) -> list[str]:
        """The topics that one look asks for."""
        self.asked.clear()
        self.topics._create_internal()
        return list(self.asked)


@pytest.fixture
def creating(monkeypatch: pytest.MonkeyPatch) -> Creating:
    creating = Creating()
    monkeypatch.setattr(metadata, "create", creating.create)
    return creating


def test_what_was_deleted_is_created_again(creating: Creating) -> None:
    assert len(creating.look()) == 3
    assert SYNCS in creating.source.topics
    assert MAP in creating.target.topics
    assert creating.look() == []
    del creating.target.topics[MAP]
    assert creating.look() == [MAP]


def test_what_may_not_be_created_is_asked_for_and_told_once(
    creating: Creating, caplog: pytest.LogCaptureFixture
) -> None:
    creating.refused[MAP] = messages.TOPIC_AUTHORIZATION_FAILED
    assert MAP in creating.look()
    assert creating.look() == []
    assert len([r for r in caplog.records if r.levelno == logging.WARNING]) == 1
    creating.target.topics[MAP] = None  # created by another client
    creating.look()
    del creating.target.topics[MAP]
    assert creating.look() == [MAP]


def test_an_error_that_may_pass_is_tried_again(creating: Creating) -> None:
    creating.refused[MAP] = messages.NOT_CONTROLLER
    assert MAP in creating.look()
    assert creating.look() == [MAP]
