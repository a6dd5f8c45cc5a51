"""Kafka's own command-line tools, asked about a cluster: what they print comes out, taken apart."""

from __future__ import annotations

from sparkmirror.tools.clusters import run_tool

_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
_FORMATTERS = "org.apache.kafka.connect.mirror.formatters"
_GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
_PATIENCE_S = 120.0


def printed(bootstrap: str, topic: str, formatter: str, count: int) -> list[str]:
    """The first `count` records of one of MirrorMaker's topics as its formatter prints them."""
    said = run_tool(
        _CONSUMER,
        *("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning"),
        *("--formatter", f"{_FORMATTERS}.{formatter}", "--max-messages", str(count)),
        timeout=_PATIENCE_S,
    )
    return [line for line in said.splitlines() if "{" in line]


def described_groups(bootstrap: str) -> dict[tuple[str, str, int], tuple[int, int]]:
    """What `kafka-consumer-groups --describe` shows, by group, topic and partition: the offset and the lag."""
    said = run_tool(
        _GROUPS,
        *("--bootstrap-server", bootstrap, "--describe", "--all-groups"),
        timeout=_PATIENCE_S,
    )
    rows = [line.split() for line in said.splitlines() if line]
    return {
        (row[0], row[1], int(row[2])): (int(row[3]), int(row[5]))
        for row in rows
        if len(row) > 5 and row[2].isdigit() and row[3].isdigit()
    }
