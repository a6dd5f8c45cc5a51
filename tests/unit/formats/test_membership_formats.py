"""Connect's group protocol against bytes that Connect 4.3.1's own classes wrote."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.formats.membership import (
    CONFIG_MISMATCH,
    MalformedMembership,
    Subprotocol,
    Work,
    WorkerAssignment,
    WorkerMetadata,
    decode_assignment,
    decode_metadata,
    encode_assignment,
    encode_metadata,
)

_URL = "http://127.0.0.1:8083/"
_SHARE = WorkerAssignment(
    leader="connect-1-7c1d",
    leader_url=_URL,
    config_offset=42,
    assigned=Work(
        ("mirror-source", "mirror-checkpoint", "hb"),
        (("mirror-source", 0), ("mirror-source", 2), ("other", 1)),
    ),
    revoked=Work(("gone", "mirror-heartbeat"), (("gone", 0), ("gone", 1))),
    delay_ms=1500,
)
_FAILED = WorkerAssignment("l", "http://é:1/", 9, error=CONFIG_MISMATCH)
_SHARE_HEAD = (
    "0000000e636f6e6e6563742d312d376331640016687474703a2f2f3132372e302e302e313a383038332f"
    "000000000000002a0000000400116d6972726f722d636865636b706f696e7400000001ffffffff000d6d6972726f"
    "722d736f7572636500000003ffffffff00000000000000020002686200000001ffffffff00056f74686572000000"
    "0100000001"
)
_SHARE_TAIL = (
    "000000020004676f6e6500000003ffffffff000000000000000100106d6972726f722d68656172746265617400"
    "000001ffffffff000005dc"
)
_FAILED_BODY = "000100016c000c687474703a2f2fc3a93a312f0000000000000009000000000000000000000000"
_METADATA_BODY = "0016687474703a2f2f3132372e302e302e313a383038332f0000000000000029"


@pytest.mark.parametrize(
    ("protocol", "assignment", "written"),
    [
        (Subprotocol.EAGER, _SHARE, "0000" + _SHARE_HEAD),
        (Subprotocol.COMPATIBLE, _SHARE, "0001" + _SHARE_HEAD + _SHARE_TAIL),
        (Subprotocol.SESSIONED, _SHARE, "0002" + _SHARE_HEAD + _SHARE_TAIL),
        (Subprotocol.SESSIONED, _FAILED, "0002" + _FAILED_BODY),
    ],
)
def test_assignments_are_written_as_java_writes_them(
    protocol: Subprotocol, assignment: WorkerAssignment, written: str
) -> None:
    assert encode_assignment(assignment, protocol).hex() == written


@pytest.mark.parametrize(
    ("protocol", "owned", "written"),
    [
        (Subprotocol.EAGER, None, "0000" + _METADATA_BODY),
        (Subprotocol.EAGER, _FAILED, "0000" + _METADATA_BODY),
        (Subprotocol.COMPATIBLE, None, "0001" + _METADATA_BODY + "ffffffff"),
        (Subprotocol.SESSIONED, None, "0002" + _METADATA_BODY + "ffffffff"),
        (
            Subprotocol.COMPATIBLE,
            _FAILED,
            "0001" + _METADATA_BODY + "00000029" + "0001" + _FAILED_BODY,
        ),
        (
            Subprotocol.SESSIONED,
            _FAILED,
            "0002" + _METADATA_BODY + "00000029" + "0002" + _FAILED_BODY,
        ),
    ],
)
def test_metadata_is_written_as_java_writes_it(
    protocol: Subprotocol, owned: WorkerAssignment | None, written: str
) -> None:
    metadata = WorkerMetadata(_URL, 41, owned)
    assert encode_metadata(metadata, protocol).hex() == written
    expected = metadata if protocol is not Subprotocol.EAGER else WorkerMetadata(_URL, 41)
    assert decode_metadata(bytes.fromhex(written)) == expected


def test_an_eager_assignment_has_nothing_to_revoke() -> None:
    read = decode_assignment(bytes.fromhex("0000" + _SHARE_HEAD))
    assert (read.revoked, read.delay_ms) == (Work(), 0)
    assert set(read.assigned.connectors) == set(_SHARE.assigned.connectors)
    assert read.assigned.tasks == _SHARE.assigned.tasks


def test_null_lists_count_as_empty() -> None:
    written = encode_assignment(_FAILED, Subprotocol.SESSIONED)
    nulls = written[:-12] + b"\xff" * 8 + written[-4:]
    assert decode_assignment(nulls) == _FAILED


_NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_WORKS = st.builds(
    lambda names, tasks: Work(
        tuple(names), tuple((name, n) for name, numbers in tasks.items() for n in numbers)
    ),
    st.lists(_NAMES, unique=True, max_size=20),
    st.dictionaries(_NAMES, st.lists(st.integers(0, 1000), unique=True, max_size=5), max_size=5),
)


@given(
    _NAMES, _NAMES, st.integers(-1, 2**63 - 1), _WORKS, _WORKS, st.integers(0, 300_000),
    st.sampled_from([Subprotocol.COMPATIBLE, Subprotocol.SESSIONED]),
)  # fmt: skip
def test_what_is_written_is_read_again(
    leader: str,
    url: str,
    offset: int,
    assigned: Work,
    revoked: Work,
    delay: int,
    protocol: Subprotocol,
) -> None:
    assignment = WorkerAssignment(leader, url, offset, assigned, revoked, 0, delay)
    read = decode_assignment(encode_assignment(assignment, protocol))
    for kept, work in ((read.assigned, assigned), (read.revoked, revoked)):
        assert set(kept.connectors) == set(work.connectors)
        assert sorted(kept.tasks) == sorted(work.tasks)
    assert replace(read, assigned=Work(), revoked=Work()) == replace(
        assignment, assigned=Work(), revoked=Work()
    )


@pytest.mark.parametrize("length", range(len(_SHARE_HEAD) // 2 + 2))
def test_what_ends_early_is_refused(length: int) -> None:
    whole = bytes.fromhex("0002" + _SHARE_HEAD)
    try:
        read = decode_assignment(whole[:length])
    except MalformedMembership:
        return
    assert read.assigned == Work(), "only what comes after the config offset may be missing"


def test_what_no_worker_sends_is_refused() -> None:
    with pytest.raises(MalformedMembership, match="version -1"):
        decode_metadata(b"\xff\xff" + b"\0" * 20)
    with pytest.raises(MalformedMembership, match="UTF-8"):
        decode_metadata(b"\0\x02\0\x01\xff" + b"\0" * 8)
    with pytest.raises(MalformedMembership, match="32767"):
        encode_metadata(WorkerMetadata("x" * 32768, 0), Subprotocol.SESSIONED)


def test_what_a_worker_offers() -> None:
    assert [p.value for p in Subprotocol.SESSIONED.offered] == [
        "sessioned",
        "compatible",
        "default",
    ]
    assert [p.value for p in Subprotocol.COMPATIBLE.offered] == ["compatible", "default"]
    assert [p.value for p in Subprotocol.EAGER.offered] == ["default"]
    assert [p.version for p in Subprotocol.SESSIONED.offered] == [2, 1, 0]
