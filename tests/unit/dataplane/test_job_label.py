"""What Spark's pages call the jobs of a flow."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.dataplane.job_label import JobLabel
from sparkmirror.dataplane.plan import CopySettings, PartitionPlan, TaskPlan
from sparkmirror.dataplane.positions import StoreAddress
from sparkmirror.kafka.settings import client_settings

SOURCE = client_settings("A", {"bootstrap.servers": "a:1"})
TARGET = client_settings("B", {"bootstrap.servers": "b:1"})
STORE = StoreAddress("offsets", "mm2", "A")
PLAN = TaskPlan("mm2", 0, 0, SOURCE, TARGET, STORE, CopySettings(), ())
MOST = 600
TOPICS = st.from_regex(r"[A-Za-z0-9._-]{1,249}", fullmatch=True)


def part(topic: str, task: int = 0, *, queried: bool = False) -> PartitionPlan:
    return PartitionPlan(topic, 0, f"A.{topic}", task=task, queried=queried)


def test_a_job_is_called_by_flow_connector_tasks_and_topics() -> None:
    plans = [
        replace(PLAN, partitions=(part("orders"), part("payments", 1))),
        replace(PLAN, partitions=(part("orders", 2),)),
    ]
    assert JobLabel.of(plans).copying(2) == (
        "sparkmirror A->B: orders, payments; 3 tasks of mm2 in 2 Spark tasks"
    )


def test_one_of_each_is_told_as_one() -> None:
    found = JobLabel.of([replace(PLAN, partitions=(part("orders"),))])
    assert found.copying(1) == "sparkmirror A->B: orders; 1 task of mm2 in 1 Spark task"


def test_a_query_names_the_topics_that_pass_through_it() -> None:
    plan = replace(PLAN, partitions=(part("orders", queried=True), part("audit", 1)))
    mine = JobLabel.of([plan], queried=True)
    other = replace(mine, topics=("orders", "refunds"), tasks=(4,))
    assert JobLabel.joined([mine, other]).querying(3, 2) == (
        "sparkmirror A->B, query 3: orders, refunds; 2 tasks of mm2 in 2 copy tasks"
    )
    assert JobLabel.read(other.plain) == other


@given(st.lists(TOPICS, max_size=50), st.text(min_size=1, max_size=500))
def test_a_label_stays_short_and_counts_what_it_leaves_out(topics: list[str], name: str) -> None:
    plan = replace(PLAN, flow=name, partitions=tuple(map(part, topics)))
    text = JobLabel.of([plan]).copying(1)
    assert len(text) < MOST
    left_out = len(set(topics)) - 3
    assert (f" and {left_out} more; " in text) == (left_out > 0)
