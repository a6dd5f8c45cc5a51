"""The checkpoint connector: the source's consumer groups in, task configs with a share of the groups each out."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from sparkmirror.config.checkpoint import CheckpointConfig, task_config
from sparkmirror.config.java_order import hash_order
from sparkmirror.config.keys import java_trim
from sparkmirror.errors import KafkaError
from sparkmirror.offsets.groups import Groups, Offsets

from .background import Background
from .checking import check_checkpoints
from .clients import cluster_for
from .connector import ConnectorContext
from .internal import provide_compacted
from .patience import Job, patiently, pause

log = logging.getLogger(__name__)
TASK_CLASS = "org.apache.kafka.connect.mirror.MirrorCheckpointTask"


class GroupsUnknown(KafkaError):
    """The source's groups have not been listed yet: asking for task configs again helps."""

    retriable = True


class CheckpointConnector:
    """Keeps the list of groups in step with the source cluster.

    Invariant: `_groups` is None until the groups were found for the first time, and then what the last look found, in the
    order in which Java's connector would list them, so that workers of both kinds make the same task configs.
    """

    def __init__(self, props: Mapping[str, str], context: ConnectorContext) -> None:
        self._props = dict(props)
        self._context = context
        self._config = config = CheckpointConfig.parse(props)
        self._source = cluster_for(props, "source", "admin", "checkpoint-source-admin")
        self._target = cluster_for(props, "target", "admin", "checkpoint-target-admin")
        self._listed = Groups(self._source)
        self._wanted_topics, self._wanted_groups = config.topic_filter(), config.group_filter()
        self._groups: tuple[str, ...] | None = None
        self._told: set[str] = set()
        self._label = f"Connector {config.name}"
        self._background = Background(
            self._label, self._work, context.fail, config.admin_timeout_ms / 1000
        )

    def start(self) -> None:
        """Find the groups; where that takes longer than admin.timeout.ms, it goes on after this has returned."""
        if not self._config.enabled:
            return
        for warning in self._config.warnings:
            log.warning("%s: %s", self._label, warning)
        self._background.start()

    def stop(self) -> None:
        self._background.stop()

    def task_configs(self, tasks_max: int) -> list[dict[str, str]]:
        if not (self._config.enabled and self._config.emit_checkpoints_enabled):
            return []
        groups = self._groups
        if groups is None:
            raise GroupsUnknown(
                f"{self._label}: the consumer groups of {self._source.settings} are not known yet.",
                "Check that the cluster is up; this is tried again until it is.",
            )
        shares = contiguous(groups, min(tasks_max, len(groups)))
        return [
            task_config(self._props, share, index) | {"task.class": TASK_CLASS}
            for index, share in enumerate(shares)
        ]

    # -- in the background ----------------------------------------------------------------------

    def _work(self) -> None:
        stopping = self._background.stopping
        try:
            if patiently(self._create_topic, stopping, self._label) and patiently(
                self._find_groups, stopping, self._label
            ):
                if self._background.ready():
                    self._context.request_task_reconfiguration()
                check_checkpoints(self._props, self._config, self._source, self._target)
                self._keep_looking()
        finally:
            self._source.close()
            self._target.close()

    def _keep_looking(self) -> None:
        config = self._config
        if not config.refresh_groups_enabled:
            return
        look = Job(self._label, config.refresh_groups_interval_seconds, self._refresh)
        while not pause(self._background.stopping, look.left):
            look.run()

    def _refresh(self) -> None:
        if self._find_groups() and not self._background.stopping.is_set():
            self._context.request_task_reconfiguration()

    def _create_topic(self) -> None:
        config = self._config
        provide_compacted(
            self._target,
            config.checkpoints_topic,
            config.checkpoints_replication_factor,
            may_lower_factor=not config.checkpoints_replication_factor_explicit,
        )

    # -- groups ---------------------------------------------------------------------------------

    def _find_groups(self) -> bool:
        """Look at the source; True if the groups are not what they were."""
        listed = hash_order(group.group for group in self._listed.listings() if group.is_consumers)
        chosen = [group for group in listed if self._wanted_groups.matches(group)]
        answers = self._listed.committed(chosen)
        for error in answers.failed.values():
            if error.retriable:  # a group that cannot be asked now is not a group that is gone
                raise error
        found = [
            group
            for group in chosen
            if group in answers.found and self._has_wanted_topic(answers.found[group])
        ]
        self._tell_left_out(answers.failed, [group for group in found if not _fits_list(group)])
        before, after = set(self._groups or ()), {group for group in found if _fits_list(group)}
        if self._groups is not None and before == after:
            return False
        self._groups = tuple(hash_order(group for group in found if group in after))
        log.info(
            "%s: %d consumer group(s), %d new, %d gone.",
            self._label,
            len(after),
            len(after - before),
            len(before - after),
        )
        return True

    def _has_wanted_topic(self, offsets: Offsets) -> bool:
        return any(self._wanted_topics.matches(topic) for topic, _ in offsets)

    def _tell_left_out(self, failed: Mapping[str, KafkaError], unfit: Sequence[str]) -> None:
        """Each group once, not at every look."""
        reasons = {group: str(error) for group, error in failed.items()}
        reasons |= {
            group: f"Group {group!r} cannot be followed: its name cannot stand in a list in a task config."
            for group in unfit
        }
        for group, reason in reasons.items():
            if group not in self._told:
                log.warning("%s: %s", self._label, reason)
        self._told = set(reasons)


def contiguous(groups: Sequence[str], count: int) -> list[tuple[str, ...]]:
    """`groups` cut into `count` runs; the first ones are one longer where it does not come out even."""
    shares: list[tuple[str, ...]] = []
    start = 0
    for index in range(count):
        end = start + len(groups) // count + (index < len(groups) % count)
        shares.append(tuple(groups[start:end]))
        start = end
    return shares


def _fits_list(group: str) -> bool:
    """Whether a task would read the group's name as it is: names are separated by commas, and blanks around them are lost."""
    return bool(group) and "," not in group and java_trim(group) == group == group.strip()
