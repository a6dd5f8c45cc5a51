"""Trees of flows: from heartbeats topics, as lines and as JSON."""

from __future__ import annotations

import pytest

from sparkmirror.formats.mirror import Heartbeat
from sparkmirror.tools.topology import HeartbeatsTopic, Upstream, own_alias, upstream_tree
from sparkmirror.tools.topology_view import Clock, ClusterView, document, drawing, duration

NOW = 1_000_000_000
CLOCK = Clock(NOW, 60_000)


def topic(*path: str, **ages_ms: int) -> HeartbeatsTopic:
    """A heartbeats topic that came along `path`; `A_B=5` is a heartbeat of A->B, 5 ms old."""
    flows = ((flow.partition("_"), age) for flow, age in ages_ms.items())
    beats = (Heartbeat(source, target, NOW - age) for (source, _, target), age in flows)
    return HeartbeatsTopic(".".join((*path, "heartbeats")), path, tuple(beats))


def shape(nodes: tuple[Upstream, ...]) -> dict[str, object]:
    return {node.alias: shape(node.upstream) for node in nodes}


def drawn(alias: str | None, *topics: HeartbeatsTopic) -> list[str]:
    return drawing([ClusterView(alias, "host:1", upstream_tree(alias, topics))], CLOCK)


def test_a_chain_of_three() -> None:
    at_c = (
        topic(B_C=400),
        topic("B", A_B=700, C_B=900),
        topic("B", "A", B_A=1200),
    )
    assert drawn("C", *at_c) == [
        "C (host:1)",
        "└── B  1 hop, last heartbeat copied 0.7 s ago, announced 0.4 s ago",
        "    └── A  2 hops, last heartbeat copied 1.2 s ago, announced 0.7 s ago",
    ]


def test_fan_in_with_a_flow_that_has_ended() -> None:
    at_d = (
        topic(A_D=500, B_D=400_000),
        topic("A", D_A=600),
        topic("B", D_B=300_000),
        topic("C"),
    )
    assert drawn("D", *at_d) == [
        "D (host:1)",
        "├── A  1 hop, last heartbeat copied 0.6 s ago, announced 0.5 s ago",
        "├── B  1 hop, last heartbeat copied 5 min ago STALE, announced 7 min ago STALE",
        "└── C  1 hop, last heartbeat copied never STALE",
    ]


def test_branches_go_on_beside_their_children() -> None:
    at_d = (topic("A"), topic("A", "X"), topic("A", "Y"), topic("B", Z_B=0))
    assert drawn("D", *at_d) == [
        "D (host:1)",
        "├── A  1 hop, last heartbeat copied never STALE",
        "│   ├── X  2 hops, last heartbeat copied never STALE",
        "│   └── Y  2 hops, last heartbeat copied never STALE",
        "└── B  1 hop, last heartbeat copied 0.0 s ago",
        "    └── Z  announced 0.0 s ago, its own heartbeats do not arrive",
    ]


def test_active_active_has_no_way_back() -> None:
    at_a = (topic(B_A=100), topic("B", A_B=100))
    assert shape(upstream_tree("A", at_a)) == {"B": {}}
    # Who does not know its own name sees the way back, but only once.
    assert shape(upstream_tree(None, at_a)) == {"B": {"A": {}}}


def test_a_cycle_of_three_is_drawn_once_around() -> None:
    at_a = (topic(C_A=1), topic("C", B_C=1), topic("C", "B", A_B=1))
    assert shape(upstream_tree("A", at_a)) == {"C": {"B": {}}}


def test_heartbeats_that_only_announce_are_no_hop() -> None:
    (node,) = upstream_tree("B", [topic(A_B=100)])
    assert (node.hops, node.topic, node.announced_at) == (-1, None, NOW - 100)
    assert not node.is_stale(NOW, 60_000)
    assert node.is_stale(NOW + 60_000, 60_000)


def test_a_cluster_known_by_those_behind_it_is_a_hop() -> None:
    (node,) = upstream_tree("C", [topic("B", "A", B_A=100)])
    assert (node.alias, node.topic, node.hops) == ("B", None, 1)
    assert not node.is_stale(NOW, 60_000)
    assert node.upstream[0].hops == 2
    assert drawn("C", topic("B", "A", B_A=100))[1] == (
        "└── B  1 hop, its own heartbeats do not arrive"
    )


def test_flows_that_do_not_copy_are_left_out_if_that_is_known() -> None:
    flows = {("A", "B"), ("B", "C")}
    at_c = (topic(A_C=1, B_C=1), topic("B", A_B=1, C_B=1), topic("B", "A", B_A=1, C_A=1, X_A=1))

    def may_copy(source: str, target: str | None) -> bool:
        return (source, target) in flows

    assert shape(upstream_tree("C", at_c)) == {"A": {}, "B": {"A": {"X": {}}}}
    assert shape(upstream_tree("C", at_c, may_copy)) == {"B": {"A": {}}}
    # What was copied was copied, whatever is known.
    assert shape(upstream_tree("C", at_c, lambda *_: False)) == {"B": {"A": {}}}


def test_the_newest_announcement_counts() -> None:
    local = HeartbeatsTopic(
        "heartbeats", (), (Heartbeat("A", "B", NOW - 5), Heartbeat("A", "other", NOW - 9))
    )
    assert upstream_tree("B", [local])[0].announced_at == NOW - 5


def test_a_cluster_is_called_what_its_own_heartbeats_call_it() -> None:
    assert own_alias([topic(A_B=1, C_B=1), topic("A", D_A=1)]) == "B"
    assert own_alias([topic("A", D_A=1)]) is None
    assert own_alias([topic(A_B=1, A_C=1)]) is None


def test_clusters_without_an_answer_or_without_flows() -> None:
    clusters = [
        ClusterView("A", "host:1", error="No broker can be reached."),
        ClusterView(None, "host:2"),
    ]
    assert drawing(clusters, CLOCK) == [
        "A (host:1): cannot be asked. No broker can be reached.",
        "host:2",
        "└── no flow into it is known",
    ]
    assert document(clusters, CLOCK) == [
        {
            "cluster": "A",
            "bootstrap": "host:1",
            "error": "No broker can be reached.",
            "upstream": [],
        },
        {"cluster": None, "bootstrap": "host:2", "error": None, "upstream": []},
    ]


def test_the_tree_as_json() -> None:
    tree = upstream_tree("C", [topic("B", A_B=70_000, C_B=90_000), topic("B", "A", B_A=1500)])
    assert document([ClusterView("C", "host:1", tree)], CLOCK)[0]["upstream"] == [
        {
            "alias": "B",
            "path": ["B"],
            "hops": 1,
            "topic": "B.heartbeats",
            "copied_seconds_ago": 70.0,
            "announced_seconds_ago": None,
            "stale": True,
            "upstream": [
                {
                    "alias": "A",
                    "path": ["B", "A"],
                    "hops": 2,
                    "topic": "B.A.heartbeats",
                    "copied_seconds_ago": 1.5,
                    "announced_seconds_ago": 70.0,
                    "stale": False,
                    "upstream": [],
                }
            ],
        }
    ]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-5, "0.0 s"),
        (950, "0.9 s"),
        (9_990, "10.0 s"),
        (10_000, "10 s"),
        (119_000, "119 s"),
        (120_000, "2 min"),
        (7_200_000, "2 h"),
        (200_000_000, "2 days"),
    ],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert duration(milliseconds) == text
