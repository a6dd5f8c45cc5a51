"""Connect's own classes write what ours read, and read what ours write."""

from __future__ import annotations

import random

import pytest
from java_source import ask_java

from sparkmirror.formats.membership import (
    Subprotocol,
    Work,
    WorkerAssignment,
    WorkerMetadata,
    decode_assignment,
    decode_metadata,
    encode_assignment,
    encode_metadata,
)

_PROTOCOLS = tuple(Subprotocol)


def _named(rng: random.Random) -> str:
    letters = "abcXYZ.-_é→ 0123456789"
    return "".join(rng.choices(letters, k=rng.randint(1, 12))).strip() or "x"


def _work(rng: random.Random, size: int) -> Work:
    names = list(dict.fromkeys(_named(rng) for _ in range(size)))
    tasks = [(name, number) for name in names for number in range(rng.randint(0, 3))]
    rng.shuffle(tasks)
    return Work(tuple(rng.sample(names, rng.randint(0, len(names)))), tuple(tasks))


def _assignment(rng: random.Random) -> WorkerAssignment:
    return WorkerAssignment(
        leader=f"connect-{rng.random()}",
        leader_url=f"http://{_named(rng).replace(' ', '')}:8083/",
        config_offset=rng.randint(-1, 1 << 62),
        # A hash set of twelve or more has as many buckets as the version of Java pleases.
        assigned=_work(rng, rng.randint(0, 11)),
        revoked=_work(rng, rng.randint(0, 11)),
        error=rng.randint(0, 1),
        delay_ms=rng.randint(0, 300_000),
    )


def _tasks(work: Work) -> str:
    return ",".join(f"{name}:{number}" for name, number in work.tasks)


def _fields(a: WorkerAssignment) -> str:
    parts = (a.error, a.leader, a.leader_url, a.config_offset)
    assigned = (",".join(a.assigned.connectors), _tasks(a.assigned))
    revoked = (",".join(a.revoked.connectors), _tasks(a.revoked))
    return "\t".join(str(part) for part in (*parts, *assigned, *revoked, a.delay_ms))


@pytest.fixture(scope="module")
def assignments() -> list[WorkerAssignment]:
    rng = random.Random(415)
    return [_assignment(rng) for _ in range(200)]


def test_assignments_have_the_bytes_of_java(assignments: list[WorkerAssignment]) -> None:
    asked = [(a, protocol) for a in assignments for protocol in _PROTOCOLS]
    written = ask_java(
        "MembershipPeer", [f"write-assignment\t{p.version}\t{_fields(a)}" for a, p in asked]
    )
    assert written == [encode_assignment(a, protocol).hex() for a, protocol in asked]


def test_metadata_has_the_bytes_of_java(assignments: list[WorkerAssignment]) -> None:
    asked = [
        (WorkerMetadata("http://worker:8083/", 7, a), protocol)
        for a in (None, *assignments)
        for protocol in _PROTOCOLS
    ]
    lines = []
    for metadata, protocol in asked:
        owned = "" if metadata.assignment is None else f"\t{_fields(metadata.assignment)}"
        lines.append(f"write-metadata\t{protocol.version}\t{metadata.url}\t7{owned}")
    written = ask_java("MembershipPeer", lines)
    assert written == [encode_metadata(metadata, protocol).hex() for metadata, protocol in asked]


def test_java_reads_what_we_write(assignments: list[WorkerAssignment]) -> None:
    both = (Subprotocol.COMPATIBLE, Subprotocol.SESSIONED)
    written = [encode_assignment(a, protocol) for a in assignments for protocol in both]
    read = ask_java("MembershipPeer", [f"read-assignment\t{data.hex()}" for data in written])
    assert read == [_fields(decode_assignment(data)) for data in written]


def test_java_reads_the_metadata_we_write(assignments: list[WorkerAssignment]) -> None:
    written = [
        encode_metadata(WorkerMetadata("http://worker:8083/", 7, a), protocol)
        for a in (None, *assignments)
        for protocol in _PROTOCOLS
    ]
    expected = []
    for data in written:
        metadata = decode_metadata(data)
        owned = "" if metadata.assignment is None else f"\t{_fields(metadata.assignment)}"
        expected.append(f"{metadata.url}\t{metadata.config_offset}{owned}")
    assert (
        ask_java("MembershipPeer", [f"read-metadata\t{data.hex()}" for data in written]) == expected
    )
