"""Kafka's own `MirrorClient` and `RemoteClusterUtils` beside ours, on the same cluster: every answer is the same."""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Iterable, Mapping

import pytest
from flow_records import provide, write_checkpoints, write_heartbeats
from java_source import ask_java

from sparkmirror import client
from sparkmirror.formats.mirror import Checkpoint
from sparkmirror.tools.clusters import KafkaCluster

JAVA = "org.apache.kafka.connect.mirror"
PATIENCE = 30.0
Question = tuple[str, str, str]

POLICIES = {
    "default": {},
    "separator": {"replication.policy.separator": "__"},
    "legacy internal names": {
        "replication.policy.separator": "__",
        "replication.policy.internal.topic.separator.enabled": "false",
    },
    "identity": {"replication.policy.class": f"{JAVA}.IdentityReplicationPolicy"},
    "identity with a source": {
        "replication.policy.class": f"{JAVA}.IdentityReplicationPolicy",
        "source.cluster.alias": "A",
    },
}


@pytest.fixture(scope="module")
def filled(peer_cluster: KafkaCluster) -> str:
    """A cluster with all sorts of topics."""
    bootstrap = peer_cluster.bootstrap
    mark = uuid.uuid4().hex[:6]
    for s in (".", "__"):
        beats = ["A", f"B{s}A", f"C{s}B{s}A", f"A{s}B{s}A", f"D{s}{s}E"]
        provide(bootstrap, *(f"{path}{s}heartbeats" for path in beats))
        provide(bootstrap, f"A{s}orders", f"B{s}A{s}orders", f"A{s}my-heartbeats")
        provide(bootstrap, f"mm2-status{s}A{s}internal", f"B{s}checkpoints{s}internal")
        for alias in ("A", f"us{s}west"):
            write_checkpoints(
                bootstrap,
                f"{alias}{s}checkpoints{s}internal",
                [
                    Checkpoint("g1", f"{alias}{s}orders", 0, 10, 5),
                    Checkpoint("g1", f"{alias}{s}orders", 1, 11, 6, "ünicode"),
                    Checkpoint("g2", f"{alias}{s}orders", 0, 20, 15),
                    Checkpoint("g1", f"{alias}{s}orders", 0, 30, 25),
                    Checkpoint("g1", f"{alias}{s}orders", 0, 12, 7),
                ],
            )
    provide(bootstrap, "plain", f"-{mark}heartbeats", "source1-heartbeats", "heartbeats-2")
    provide(bootstrap, "checkpoints.internal", "-checkpoints.internal", ".hidden", "topic.")
    write_heartbeats(bootstrap, "heartbeats", ("A", "B", 1.0))
    return bootstrap


def questions(separator: str) -> list[Question]:
    aliases = ("A", "B", "C", "D", "E", "us", "nowhere")
    found: list[Question] = [
        *((name, "", "") for name in ("heartbeat_topics", "checkpoint_topics")),
        ("upstream_clusters", "", ""),
        *(("replication_hops", alias, "") for alias in aliases),
        *(("remote_topics", alias, "") for alias in ("", *aliases)),
    ]
    for alias in ("A", f"us{separator}west"):
        found += [("translate", group, alias) for group in ("g1", "g2", "unknown")]
        found += [("translate_pattern", pattern, alias) for pattern in ("g.*", "g1|x", "1", ".*")]
    return found


def ours(question: Question, props: Mapping[str, str]) -> list[str]:
    name, first, second = question
    match name:
        case "replication_hops":
            return [str(client.replication_hops(props, first))]
        case "translate":
            offsets = client.remote_consumer_offsets(props, second, first, PATIENCE)
            return list(rows({first: offsets}))
        case "translate_pattern":
            pattern = re.compile(first)
            return list(rows(client.remote_consumer_offsets(props, second, pattern, PATIENCE)))
        case "remote_topics":
            return sorted(client.remote_topics(props, first or None))
    found: set[str] = getattr(client, name)(props)
    return sorted(found)


def rows(groups: Mapping[str, client.GroupOffsets]) -> Iterable[str]:
    for group, offsets in sorted(groups.items()):
        for (topic, partition), offset in sorted(offsets.items()):
            yield f"{group} {topic} {partition} {offset.offset} {offset.metadata}"


def coded(question: Question, props: Mapping[str, str]) -> str:
    fields = [*question, *(text for pair in props.items() for text in pair)]
    return " ".join(base64.b64encode(field.encode()).decode() for field in fields)


def test_java_and_we_give_the_same_answers(filled: str) -> None:
    asked = []
    for name, policy in POLICIES.items():
        separator = "__" if name == "separator" else "."
        props = {"bootstrap.servers": filled, **policy}
        asked += [(question, props) for question in questions(separator)]
    said = ask_java("MirrorClientPeer", [coded(question, props) for question, props in asked])
    lines = [line for line in said if line.startswith("answer")]
    assert len(lines) == len(asked)
    answers = [
        [base64.b64decode(field[1:]).decode() for field in line.split(" ")[1:] if field]
        for line in lines
    ]
    different = [
        (question, props, theirs, mine)
        for (question, props), theirs in zip(asked, answers, strict=True)
        if theirs != (mine := ours(question, props))
    ]
    assert different == []
    # The questions do tell things apart.
    assert len({tuple(answer) for answer in answers}) > 15
