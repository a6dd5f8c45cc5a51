"""Brokers of the target that go and come back: the copy waits, then goes on, with every record once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from kafka_tools import leaders
from mirrored import Make, Unique, making

from sparkmirror.tools.clusters import KafkaCluster


@pytest.fixture
def make(
    source_cluster: KafkaCluster, three_broker_target: KafkaCluster, unique: Unique
) -> Iterator[Make]:
    with making(source_cluster, three_broker_target, unique) as made:
        yield made


@pytest.mark.slow
def test_leaders_move_under_load(make: Make) -> None:
    """What is in flight to the old leader is sent again to the new one, which knows what it has."""
    mirrored = make(3)
    with mirrored.load(), mirrored.copying() as task, mirrored.copying(flush_interval=60.0):
        mirrored.wait(task, 200)
        node = leaders(mirrored.target.bootstrap, mirrored.remote)[0]
        mirrored.target.stop(node)
        mirrored.wait(task, mirrored.target_count() + 200)
        mirrored.target.restart(node)
    mirrored.copy_all()
    mirrored.assert_same()


@pytest.mark.slow
def test_too_few_replicas_are_waited_for(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Two of three brokers are gone: neither records nor claims of a new numbering can be written."""
    running, starting = make(2), make()
    starting.flow.target.settings = replace(starting.flow.target.settings, request_timeout=3.0)
    running.produce(200, 0)
    running.produce(200, 1)
    starting.produce(300)
    with running.copying() as first:
        running.wait(first)
        nodes = [node for node in running.target.nodes if node != 3]
        for node in nodes:
            running.target.kill(node)
        running.produce(300, 0)
        running.produce(300, 1)
        with starting.copying() as second:
            second.until(
                "it has tried", lambda: "Trying again" in caplog.text or "Next try" in caplog.text
            )
            for node in nodes:
                running.target.restart(node)
            running.wait(first)
            starting.wait(second)
    for mirrored in (running, starting):
        mirrored.produce(10)
        mirrored.copy_all()
        mirrored.assert_same()
