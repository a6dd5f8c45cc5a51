"""Remote topics: source topics in, the topics that a flow writes them to created and widened on the target out.

A target may take minutes to create thousands of topics. So this is done in steps: `provide` returns after a while, and what is
there by then can be copied while the next step creates more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial

from sparkmirror.errors import BrokerError, KafkaError, Unanswered
from sparkmirror.kafka import admin, messages, topic_configs
from sparkmirror.kafka.admin import NewTopic
from sparkmirror.kafka.cluster import Cluster, back_off
from sparkmirror.kafka.property_support import Properties, PropertySupport
from sparkmirror.kafka.request_parts import cut

from . import metadata
from .news import News
from .source_settings import SourceSettings
from .topic_configs import tell_left_out

log = logging.getLogger(__name__)
# How long a step creates topics, at first and at most. Each step may restart the tasks, so the steps get longer.
_STEP_S = (5.0, 60.0)
_LOOK_S = (0.05, 1.0)
_MOST_TOLD = 10


class RemoteTopics:
    """Creates and widens the topics that a flow writes to.

    Invariants: a round is as many steps as it takes to try every missing topic once, and `is_complete` says that it is over.
    A topic that failed is tried again in the next round; its error is told once, and again when it is another one.
    """

    def __init__(
        self,
        settings: SourceSettings,
        source: Cluster,
        target: Cluster,
        stopping: threading.Event,
        support: PropertySupport,
    ) -> None:
        self._settings = settings
        self._config = settings.config
        self._source = source
        self._target = target
        self._stopping = stopping
        self._support = support
        self._news = News()
        self._step = _STEP_S[0]
        self._tried: set[str] = set()
        """To create, in this round."""
        self._errors: dict[str, KafkaError] = {}
        """Of this round."""
        self._is_told = False
        self.is_complete = True

    def provide(self, topics: Sequence[str]) -> None:
        """Create and widen what is missing for these source topics, for the time of a step; errors are told.

        The topics of both clusters must have been read just before.
        """
        counts, originals = self._wanted(topics)
        existing = {name: len(info.partitions) for name, info in self._target.topics.items()}
        create, widen = metadata.missing_topics(counts, existing)
        errors = self._widen(widen)
        left = {name: count for name, count in create.items() if name not in self._tried}
        errors |= self._create_for_a_while(left, originals)
        self._tell(errors)
        self._errors |= errors
        self.is_complete = left.keys() <= self._tried
        if self.is_complete:
            self._news.keep(self._errors)
            self._step, self._tried, self._errors = _STEP_S[0], set(), {}
        else:
            self._step = min(self._step * 2, _STEP_S[1])

    def _wanted(self, topics: Sequence[str]) -> tuple[dict[str, int], dict[str, str]]:
        """The partitions that each remote topic should have, and the source topic whose properties it gets."""
        counts: dict[str, int] = {}
        originals: dict[str, str] = {}
        for topic in topics:
            name = self._settings.written_topic(topic)
            if name is not None:  # several topics may be routed to one
                count = self._config.wanted_partitions(topic)
                if count is None:
                    count = len(self._source.topics[topic].partitions)
                counts[name] = max(count, counts.get(name, 0))
                originals.setdefault(name, topic)
        return counts, originals

    def _widen(self, counts: Mapping[str, int]) -> dict[str, KafkaError]:
        errors: dict[str, KafkaError] = {}
        for name, error in admin.create_partitions(self._target, counts).items():
            if error is None:
                log.info("Widened topic %s to %d partitions.", name, counts[name])
            else:
                errors[name] = error
        self._wait_for({name: count for name, count in counts.items() if name not in errors})
        return errors

    def _create_for_a_while(
        self, counts: Mapping[str, int], originals: Mapping[str, str]
    ) -> dict[str, KafkaError]:
        """Create topics part by part, at least one part, until the time is over."""
        deadline = time.monotonic() + self._step
        total = len(self._tried) + len(counts)
        failed = sum(name in self._tried for name in self._errors)
        errors: dict[str, KafkaError] = {}
        for part in cut(list(counts), admin.CREATION, lambda name: counts[name] + 1):
            errors |= self._create({name: counts[name] for name in part}, originals)
            self._tried.update(part)
            if len(part) < total:
                created = len(self._tried) - failed - len(errors)
                log.info("Created %d of %d topics on %s.", created, total, self._where)
            if time.monotonic() > deadline or self._stopping.is_set():
                break
        return errors

    @property
    def _where(self) -> str:
        return str(self._target.settings)

    def _create(
        self, counts: Mapping[str, int], originals: Mapping[str, str]
    ) -> dict[str, KafkaError]:
        """Create a part, and wait until the target tells of it; the topics that could not be created, with the error."""
        config = self._config
        described = topic_configs.describe(self._source, [originals[name] for name in counts])
        errors: dict[str, KafkaError] = {
            name: described.errors[originals[name]]
            for name in counts
            if originals[name] in described.errors
            and not _is_never_told(described.errors[originals[name]])
        }
        self._tell_unreadable([e for e in described.errors.values() if _is_never_told(e)])
        wanted = {
            name: metadata.creation_configs(
                described.configs.get(originals[name], ()),
                config.config_property_filter(),
                with_defaults=config.use_defaults_from == "source",
            )
            for name in counts
            if name not in errors
        }
        errors |= self._support.send(wanted, partial(self._create_with, counts))
        tell_left_out(self._support, self._target)
        self._wait_for({name: counts[name] for name in wanted if name not in errors})
        return errors

    def _tell_unreadable(self, errors: Sequence[BrokerError]) -> None:
        """Once: topics whose properties we may not read are created with those that the target gives them."""
        if errors and not self._is_told:
            self._is_told = True
            log.warning(
                "%s Remote topics get the properties that %s gives them.", errors[0], self._where
            )

    def _create_with(
        self, counts: Mapping[str, int], properties: Mapping[str, Properties]
    ) -> dict[str, BrokerError]:
        config = self._config
        new = [
            NewTopic(
                name,
                counts[name],
                config.replication_factor,
                {key: value for key, value in its.items() if value is not None},
            )
            for name, its in properties.items()
        ]
        may_lower = not config.replication_factor_explicit
        return metadata.create(self._target, new, may_lower_factor=may_lower)

    def _wait_for(self, counts: Mapping[str, int]) -> None:
        """Until the target tells of the partitions it has just made: brokers hear of them one after the other."""
        if not counts:
            return
        deadline = time.monotonic() + self._config.admin_timeout_ms / 1000
        missing = dict(counts)
        for wait in back_off(*_LOOK_S):
            self._target.refresh(missing)
            missing = {name: count for name, count in missing.items() if self._lacks(name, count)}
            if not missing or time.monotonic() > deadline or self._stopping.wait(wait):
                return

    def _lacks(self, remote: str, count: int) -> bool:
        info = self._target.topics.get(remote)
        return info is None or len(info.partitions) < count

    def _tell(self, errors: Mapping[str, KafkaError]) -> None:
        new = [name for name, error in errors.items() if self._news.is_new(name, str(error))]
        for name in new[:_MOST_TOLD]:
            log.error("%s", errors[name])
        if len(new) > _MOST_TOLD:
            last = new[-1]
            log.error(
                "%d more topics cannot be created or widened on %s, the last of them: %s",
                len(new) - _MOST_TOLD,
                self._where,
                errors[last],
            )


def _is_never_told(error: BrokerError) -> bool:
    """Whether a topic's properties cannot be read: not just now, by a broker that is slow."""
    return messages.is_unavailable(error) and not isinstance(error, Unanswered)
