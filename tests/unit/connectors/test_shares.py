"""How groups are split over checkpoint tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.connectors.checkpoint import CheckpointConnector, GroupsUnknown, contiguous
from sparkmirror.errors import ConfigError, SparkMirrorError

PROPS = {
    "name": "cp",
    "connector.class": "MirrorCheckpointConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
    "source.cluster.bootstrap.servers": "127.0.0.1:1",
    "target.cluster.bootstrap.servers": "127.0.0.1:1",
}


class Nobody:
    """A worker that is told nothing in these tests."""

    def request_task_reconfiguration(self) -> None:
        raise AssertionError

    def fail(self, error: SparkMirrorError) -> None:
        raise AssertionError

    def note(self, text: str) -> None:
        raise AssertionError


@pytest.mark.parametrize(
    ("count", "lengths"), [(1, [7]), (2, [4, 3]), (3, [3, 2, 2]), (7, [1] * 7), (0, [])]
)
def test_shares_are_runs_and_the_first_are_longer(count: int, lengths: list[int]) -> None:
    groups = [f"g{i}" for i in range(7)]
    shares = contiguous(groups, count)
    assert list(map(len, shares)) == lengths
    assert [group for share in shares for group in share] == (groups if count else [])


@given(st.lists(st.text(), unique=True, min_size=1), st.integers(1, 20))
def test_every_group_is_in_one_share(groups: list[str], most: int) -> None:
    shares = contiguous(groups, min(most, len(groups)))
    assert [group for share in shares for group in share] == groups
    assert all(shares)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_groups_that_are_not_known_yet_are_worth_asking_for_again() -> None:
    with pytest.raises(GroupsUnknown) as caught:
        CheckpointConnector(PROPS, Nobody()).task_configs(1)
    assert caught.value.retriable
    assert "not known yet" in str(caught.value)


def test_a_disabled_connector_has_no_tasks_and_starts_nothing() -> None:
    connector = CheckpointConnector(PROPS | {"enabled": "false"}, Nobody())
    connector.start()
    assert connector.task_configs(3) == []
    connector.stop()


def test_a_config_without_an_address_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        CheckpointConnector({**PROPS, "source.cluster.bootstrap.servers": ""}, Nobody())
