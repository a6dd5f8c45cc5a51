"""Groups that come home: each thing that was read elsewhere is brought once, and what was only an echo of home never."""

from __future__ import annotations

import pytest

from sparkmirror.errors import BrokerError
from sparkmirror.formats.mirror import Checkpoint, encode_checkpoint
from sparkmirror.kafka import messages
from sparkmirror.kafka.records import NewRecord, Record
from sparkmirror.offsets.checkpoints import Naming
from sparkmirror.offsets.groups import GroupOffset, Offsets
from sparkmirror.offsets.homecoming import Echoes, Homecoming
from sparkmirror.offsets.internal_topic import InternalTopic
from sparkmirror.policy.naming import DefaultReplicationPolicy, IdentityReplicationPolicy

# The flow of A, whose groups come home to B: copies of B's topics are called B.x on A.
NAMING = Naming(DefaultReplicationPolicy(), "A", "B")


class Opposite(InternalTopic):
    """The checkpoints of the flow out of B, as records; or an error."""

    def __init__(self) -> None:
        self.rows: list[Record] = []
        self.position = 0
        self.error: BrokerError | None = None

    def write(self, downstream: int, group: str = "g") -> None:
        key, value = encode_checkpoint(Checkpoint(group, "B.t", 0, downstream, downstream))
        self.rows.append(NewRecord(len(self.rows), 0, key, value, []))

    def end(self) -> int:
        if self.error is not None:
            raise self.error
        return len(self.rows)

    def poll(self, wait: float) -> list[Record]:
        found, self.position = self.rows[self.position :], len(self.rows)
        return found


@pytest.fixture
def opposite() -> Opposite:
    return Opposite()


@pytest.fixture
def coming(opposite: Opposite) -> Homecoming:
    return Homecoming(NAMING, Echoes(opposite, ["g"]))


def news(here: int, home: int) -> tuple[list[Checkpoint], dict[str, Offsets]]:
    """A checkpoint of B's topic t for a group that is so far in its copy."""
    return [Checkpoint("g", "t", 0, here, home)], {"g": {("B.t", 0): GroupOffset(here)}}


@pytest.mark.parametrize(
    ("topic", "is_home"), [("t", True), ("A.t", False), ("A.B.t", False), ("C.t", False)]
)
def test_which_topics_are_home(topic: str, is_home: bool) -> None:
    assert NAMING.leads_home(topic) is is_home


def test_names_that_are_kept_lead_nowhere() -> None:
    policy = IdentityReplicationPolicy()
    policy.configure({"source.cluster.alias": "A"})
    assert not Naming(policy, "A", "B").leads_home("t")


def test_what_was_read_here_is_brought_home_once(coming: Homecoming, opposite: Opposite) -> None:
    opposite.write(5)
    assert coming.take(*news(8, 80))
    onward = {"g": {("A.u", 0): GroupOffset(3), ("t", 0): GroupOffset(80)}, "h": {}}
    assert coming.joined(onward) == {"g": {("A.u", 0): GroupOffset(3), ("t", 0): GroupOffset(80)}}
    coming.settle(["g"])
    assert coming.joined(onward) == {"g": {("A.u", 0): GroupOffset(3)}}


@pytest.mark.parametrize("here", [3, 5])
def test_an_echo_is_not_brought(coming: Homecoming, opposite: Opposite, here: int) -> None:
    opposite.write(5)
    opposite.write(2)  # rewound at home, which does not move the group here
    assert not coming.take(*news(here, 80))
    assert coming.pending == {}


def test_what_is_pending_goes_when_it_is_an_echo_by_now(
    coming: Homecoming, opposite: Opposite
) -> None:
    assert coming.take(*news(8, 80))
    opposite.write(9)
    assert not coming.take(*news(9, 90))
    assert coming.pending == {}


def test_checkpoints_of_copies_are_nothing_to_it(coming: Homecoming) -> None:
    offsets: dict[str, Offsets] = {"g": {("t", 0): GroupOffset(7), ("B.t", 0): None}}
    assert not coming.take([Checkpoint("g", "A.t", 0, 7, 7)], offsets)


def broker_error(code: int) -> BrokerError:
    return BrokerError(code, "NAME", "Reading failed.", "")


def test_without_the_opposite_flow_everything_was_read_here(
    coming: Homecoming, opposite: Opposite
) -> None:
    opposite.error = broker_error(messages.UNKNOWN_TOPIC_OR_PARTITION)
    assert coming.take(*news(8, 80))


def test_who_may_not_know_brings_nothing_and_says_so_once(
    coming: Homecoming, opposite: Opposite, caplog: pytest.LogCaptureFixture
) -> None:
    opposite.error = broker_error(messages.TOPIC_AUTHORIZATION_FAILED)
    assert not coming.take(*news(8, 80))
    assert not coming.take(*news(9, 90))
    assert len(caplog.messages) == 1
    opposite.error = None
    assert coming.take(*news(10, 100))


def test_other_errors_are_told(coming: Homecoming, opposite: Opposite) -> None:
    opposite.error = broker_error(messages.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(BrokerError):
        coming.take(*news(8, 80))
