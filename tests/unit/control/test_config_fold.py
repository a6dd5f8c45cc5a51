"""What the records of the config topic add up to."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.control.config_fold import ConfigFold
from sparkmirror.control.states import (
    ClusterConfig,
    RestartRequest,
    SessionKey,
    TargetState,
    TaskId,
)
from sparkmirror.formats.config_log import (
    CommitRecord,
    ConfigRecord,
    ConnectorRecord,
    LoggerRecord,
    RestartRecord,
    SessionKeyRecord,
    TargetStateRecord,
    TaskCountRecord,
    TaskRecord,
    encode,
)

CREATED = ConnectorRecord("c", {"name": "c"})
DELETED = (ConnectorRecord("c", None), TargetStateRecord("c", None))


class Heard:
    """A listener that writes down what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[object, ...]] = []

    def connector_config_updated(self, name: str) -> None:
        self.events.append(("updated", name))

    def connector_config_removed(self, name: str) -> None:
        self.events.append(("removed", name))

    def task_configs_updated(self, tasks: list[TaskId]) -> None:
        self.events.append(("tasks", *map(str, tasks)))

    def target_state_changed(self, name: str) -> None:
        self.events.append(("state", name))

    def session_key_updated(self, key: SessionKey) -> None:
        self.events.append(("key", key))

    def restart_requested(self, request: RestartRequest) -> None:
        self.events.append(("restart", request))

    def logger_level_updated(self, namespace: str, level: str) -> None:
        self.events.append(("logger", namespace, level))


def folded(*log: ConfigRecord) -> tuple[ClusterConfig, list[tuple[object, ...]]]:
    fold, heard = ConfigFold(), Heard()
    for offset, record in enumerate(log):
        notice = fold.apply(offset, *encode(record))
        if notice is not None:
            notice(heard)
    return fold.snapshot(), heard.events


def tasks(*configs: str, connector: str = "c") -> list[ConfigRecord]:
    return [
        *(TaskRecord(connector, i, {"v": config}) for i, config in enumerate(configs)),
        CommitRecord(connector, len(configs)),
    ]


def test_nothing_was_written() -> None:
    assert folded() == (ClusterConfig(), [])


def test_tasks_count_from_their_commit_on() -> None:
    first = folded(CREATED, *tasks("a", "b")[:-1])
    assert first[0].task_counts == {}
    config, events = folded(CREATED, *tasks("a", "b"))
    assert config.tasks_of("c") == (TaskId("c", 0), TaskId("c", 1))
    assert config.tasks == {TaskId("c", 0): {"v": "a"}, TaskId("c", 1): {"v": "b"}}
    assert config.offset == 4
    assert events == [("updated", "c"), ("tasks", "c-0", "c-1")]


def test_a_smaller_set_of_tasks_replaces_a_larger_one() -> None:
    config, _ = folded(CREATED, *tasks("a", "b"), *tasks("x"))
    assert config.tasks == {TaskId("c", 0): {"v": "x"}}
    assert folded(CREATED, *tasks("a"), *tasks())[0].task_counts == {"c": 0}


def test_what_compaction_left_of_a_set_of_tasks_is_inconsistent() -> None:
    config, events = folded(CREATED, TaskRecord("c", 1, {}), CommitRecord("c", 2))
    assert (config.inconsistent, config.task_counts, config.tasks) == (frozenset("c"), {}, {})
    assert config.tasks_of("c") == ()
    assert events[-1] == ("tasks",)
    healed, _ = folded(CREATED, TaskRecord("c", 1, {}), CommitRecord("c", 2), *tasks("a", "b"))
    assert (healed.inconsistent, healed.task_counts) == (frozenset(), {"c": 2})


def test_a_leftover_of_an_incomplete_set_does_not_complete_the_next() -> None:
    config, _ = folded(CREATED, TaskRecord("c", 1, {"v": "old"}), CommitRecord("c", 2), *tasks("x"))
    assert config.tasks == {TaskId("c", 0): {"v": "x"}}
    config, _ = folded(CREATED, *tasks("a", "b"), TaskRecord("c", 0, {}), CommitRecord("c", 2))
    assert config.inconsistent == {"c"}


def test_tasks_of_a_deleted_connector_do_not_come_back() -> None:
    config, _ = folded(CREATED, *tasks("a", "b"), *DELETED, CREATED)
    assert (config.connectors, config.task_counts) == ({"c": {"name": "c"}}, {})
    # The tombstones are gone by compaction, the tasks and their commit are not.
    config, events = folded(*tasks("a", "b"), CREATED)
    assert (config.task_counts, config.tasks, config.inconsistent) == ({}, {}, frozenset())
    assert events == [("updated", "c")]
    # Of the tasks only one too many is left.
    config, _ = folded(TaskRecord("c", 1, {"v": "old"}), CREATED, *tasks("x"))
    assert config.tasks == {TaskId("c", 0): {"v": "x"}}


def test_deleting_takes_everything_away() -> None:
    config, events = folded(
        CREATED, *tasks("a"), TargetStateRecord("c", "PAUSED"), *DELETED, *DELETED
    )
    assert (config.connectors, config.target_states, config.tasks) == ({}, {}, {})
    assert events[-1] == ("removed", "c")
    assert events.count(("removed", "c")) == 1


def test_target_states() -> None:
    before, events = folded(TargetStateRecord("c", "STOPPED"), CREATED)
    assert before.target_state("c") == TargetState.STOPPED
    assert events == [("updated", "c")]  # a state that comes with the connector is no change of it
    config, events = folded(
        CREATED,
        TargetStateRecord("c", "STARTED"),
        TargetStateRecord("c", "PAUSED"),
        TargetStateRecord("c", "PAUSED"),
        TargetStateRecord("c", None),
    )
    assert config.target_state("c") == TargetState.STARTED
    assert events == [("updated", "c"), ("state", "c"), ("state", "c")]


def test_announcements() -> None:
    config, events = folded(
        SessionKeyRecord(b"k", "HmacSHA256", 5),
        RestartRecord("c", include_tasks=True, only_failed=False),
        LoggerRecord("root", "WARN"),
        TaskCountRecord("c", 3),
    )
    key = SessionKey(b"k", "HmacSHA256", 5)
    assert config.session_key == key
    assert config.task_count_records == {"c": 3}
    assert events == [
        ("key", key),
        ("restart", RestartRequest("c", only_failed=False, include_tasks=True)),
        ("logger", "root", "WARN"),
    ]


def test_fencing_is_pending_from_new_tasks_to_the_next_count() -> None:
    assert folded(CREATED, *tasks("a"))[0].pending_fencing == {"c"}
    assert folded(CREATED, *tasks("a"), TaskCountRecord("c", 1))[0].pending_fencing == set()


def test_what_cannot_be_read_changes_nothing_but_the_offset() -> None:
    fold = ConfigFold()
    fold.apply(0, *encode(CREATED))
    assert fold.apply(7, b"connector-c", b"{broken") is None
    assert fold.apply(8, None, None) is None
    assert fold.snapshot() == ClusterConfig(offset=9, connectors={"c": {"name": "c"}})


def test_a_snapshot_is_made_once_and_never_changes() -> None:
    fold = ConfigFold()
    fold.apply(0, *encode(CREATED))
    before = fold.snapshot()
    assert fold.snapshot() is before
    fold.apply(1, *encode(ConnectorRecord("d", {})))
    assert "d" not in before.connectors
    assert "d" in fold.snapshot().connectors
    assert "d" in fold


NAMES = st.sampled_from(["c", "d-0"])
LOGS = st.lists(
    st.one_of(
        st.builds(ConnectorRecord, NAMES, st.sampled_from([None, {"v": "1"}, {"v": "2"}])),
        st.builds(TaskRecord, NAMES, st.integers(0, 3), st.sampled_from([{"v": "1"}, {"v": "2"}])),
        st.builds(CommitRecord, NAMES, st.integers(0, 3)),
        st.builds(TargetStateRecord, NAMES, st.sampled_from([None, "PAUSED", "STARTED"])),
    ),
    max_size=40,
)


@given(LOGS)
def test_a_snapshot_is_whole_whatever_the_log(log: Sequence[ConfigRecord]) -> None:
    config, _ = folded(*log)
    assert config.offset == len(log) or not log
    assert set(config.task_counts) <= set(config.connectors)
    assert config.inconsistent <= set(config.connectors)
    assert not config.inconsistent & set(config.task_counts)
    wanted = [task for name in config.connectors for task in config.tasks_of(name)]
    assert sorted(wanted) == sorted(config.tasks)


@given(LOGS)
def test_compaction_changes_no_connector_and_no_target_state(log: Sequence[ConfigRecord]) -> None:
    rows = [encode(record) for record in log]
    kept = [
        record
        for place, record in enumerate(log)
        if all(key != rows[place][0] for key, _ in rows[place + 1 :])
    ]
    whole, compacted = folded(*log)[0], folded(*kept)[0]
    assert compacted.connectors == whole.connectors
    assert compacted.target_states == whole.target_states
    for name in compacted.task_counts:
        # What is left of the log never tells of tasks that were not committed.
        assert name in whole.connectors


def test_records_that_nobody_can_use_are_skipped() -> None:
    """Whoever writes to the topic must not stop the workers that read it."""
    fold = ConfigFold()
    deep = '{"a":' * 700 + "1" + "}" * 700
    for offset, (key, value) in enumerate(
        [
            ("connector-deep", f'{{"properties":{{"x":{deep}}}}}'),
            ("connector-" + "n" * 40_000, '{"properties":{"name":"n"}}'),
            ("task-" + "n" * 40_000 + "-0", '{"properties":{"name":"n"}}'),
            ("commit-" + "n" * 40_000, '{"tasks":1}'),
            ("connector-c", '{"properties":{"name":"c"}}'),
        ]
    ):
        fold.apply(offset, key.encode(), value.encode())
    assert list(fold.snapshot().connectors) == ["c"]
    assert not fold.snapshot().task_counts
