"""The naming dry run."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from sparkmirror.config.source import SourceConfig
from sparkmirror.preflight.findings import Finding, Level
from sparkmirror.preflight.naming import (
    Copying,
    collision_findings,
    loop_findings,
    plan_findings,
    remote_findings,
    same_cluster_findings,
)
from sparkmirror.transforms.chain import TransformChain

_IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def copying(
    source: str,
    target: str,
    topics: Collection[str] = (),
    keys: Mapping[str, str] | None = None,
    there: Collection[str] = (),
) -> Copying:
    config = SourceConfig.parse(
        {
            "name": "c",
            "connector.class": "MirrorSourceConnector",
            "source.cluster.alias": source,
            "target.cluster.alias": target,
            **(keys or {}),
        }
    )
    names = {name: name.startswith("__") for name in topics}
    chain = TransformChain.parse(keys or {})
    return Copying(config, f"id-{source}", f"id-{target}", names, there, chain)


def told(findings: list[Finding], least: Level = Level.NOTE) -> str:
    return "\n".join(str(finding) for finding in findings if finding.level >= least)


def test_what_is_copied_and_why_not() -> None:
    names = ("orders", "B.orders", "__consumer_offsets", "mm2-offset-syncs.B.internal", "logs", "x")
    flow = copying("A", "B", names, {"topics": "orders,B.*,logs", "topics.exclude": "log.*"})
    plan = {one.topic: (one.remote, one.why_not) for one in flow.plan()}
    assert plan == {
        "orders": ("A.orders", ""),
        "B.orders": (None, "it comes from B"),
        "__consumer_offsets": (None, "kept by Kafka itself"),
        "mm2-offset-syncs.B.internal": (None, "internal topic"),
        "logs": (None, "topics.exclude has log.*"),
        "x": (None, "not in topics"),
    }
    assert "orders as A.orders" in told(plan_findings(flow, ()), Level.OK)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("ordres", "topics names ordres, which is not on A. Did you mean orders?"),
        ("Orders", "which is not on A. Did you mean orders?"),
        ("payments", "topics names payments, which is not on A."),
        ("order.", ""),
        ("pay.*", "The pattern pay.* of topics matches no topic of A."),
    ],
)
def test_topics_that_match_nothing(wanted: str, said: str) -> None:
    flow = copying("A", "B", ("orders",), {"topics": wanted})
    found = told(plan_findings(flow, ()), Level.WARNING)
    assert said in found
    assert bool(said) == bool(found)


def test_a_hidden_topic_is_told_as_its_missing_acl_only() -> None:
    flow = copying("A", "B", ("orders",), {"topics": "orders,secret"})
    assert told(plan_findings(flow, {"secret"}), Level.WARNING) == ""


def test_nothing_at_all() -> None:
    flow = copying("A", "B", ("orders",), {"topics": ".*", "topics.exclude": "orders"})
    assert "Nothing would be copied" in told(plan_findings(flow, ()), Level.WARNING)


def test_excludes_that_exclude_nothing() -> None:
    flow = copying("A", "B", ("orders", "audit"), {"topics.exclude": r"audti,mm2.*\.internal"})
    found = told(plan_findings(flow, ()))
    assert "topics.exclude has audti, which no topic matches. Did you mean audit?" in found
    assert "mm2" not in found


def test_identity_loops() -> None:
    keys = {"replication.policy.class": _IDENTITY}
    flows = [copying("A", "B", ("orders",), keys), copying("B", "A", ("orders",), keys)]
    (loop,) = loop_findings(flows)
    assert loop.level is Level.ERROR
    assert "A->B and B->A" in loop.message
    assert "DefaultReplicationPolicy" in loop.remedy
    apart = [copying("A", "B", ("orders",), keys), copying("B", "A", (), {**keys, "topics": "x"})]
    assert loop_findings(apart) == []


def test_a_loop_over_three_clusters() -> None:
    keys = {"replication.policy.class": _IDENTITY}
    flows = [
        copying(source, target, ("orders",), keys)
        for source, target in (("A", "B"), ("B", "C"), ("C", "A"))
    ]
    assert "orders would be copied in a circle" in told(loop_findings(flows))


def test_the_default_policy_has_no_loops() -> None:
    names = ("orders", "heartbeats")
    flows = [copying(s, t, names) for s in "ABC" for t in "ABC" if s != t]
    assert loop_findings(flows) == []


def test_copies_of_copies_without_end() -> None:
    """One cluster under two names."""
    flow = copying("A", "B", ("orders",))
    same = Copying(flow.config, "id", "id", flow.source_topics)
    assert "in a circle" in told(loop_findings([same]))
    assert "are the same cluster (id id)" in told(same_cluster_findings(same))
    named = copying("A", "B", ("orders",), {"topics": "orders"})
    assert loop_findings([Copying(named.config, "id", "id", named.source_topics)]) == []
    assert same_cluster_findings(flow) == []


def test_collisions() -> None:
    keys = {"replication.policy.class": _IDENTITY}
    merging = [copying("A", "C", ("orders",), keys), copying("B", "C", ("orders",), keys)]
    found = told(collision_findings(merging), Level.WARNING)
    assert "orders of A, orders of B would all be copied into the one topic orders" in found
    apart = [copying("A", "C", ("orders",)), copying("B", "C", ("orders",))]
    assert collision_findings(apart) == []


def test_what_is_there_already() -> None:
    keys = {"topics": "a,b,c"}
    flow = copying("A", "B", "abc", keys, ("A.a", "A.b"))
    found = told(remote_findings(flow, {"a": (2, 4), "b": (3, 1), "c": (1, None)}))
    assert "A.a, A.b exist(s) on B and was not made by this flow" in found
    assert "copies of a have more partitions" in found
    assert "copies of b would get more partitions" in found
    ours = copying("A", "B", "abc", keys, ("A.a", "mm2-progress.A.internal"))
    assert remote_findings(ours, {"a": (2, 2)}) == []


def test_transforms_rename_what_is_planned() -> None:
    router = "org.apache.kafka.connect.transforms"
    keys = {
        "transforms": "r",
        "transforms.r.type": f"{router}.RegexRouter",
        "transforms.r.regex": r"A\.(.*)",
        "transforms.r.replacement": "dwh-$1",
    }
    flow = copying("A", "B", ["orders"], keys)
    assert [one.remote for one in flow.plan()] == ["dwh-orders"]
    assert not flow.is_routed("orders")
    by_time = {
        "transforms": "t",
        "transforms.t.type": f"{router}.TimestampRouter",
    }
    routed = copying("A", "B", ["orders"], by_time)
    assert routed.is_routed("orders")
    assert any("name the target of each record" in str(f) for f in plan_findings(routed, ()))
