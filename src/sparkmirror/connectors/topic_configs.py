"""Topic properties in step: those of both sides in, what has to be altered on the target out; and the doing of it.

MirrorMaker 2 sends everything in every round. Here the target is looked at first and only what differs is sent: the result is the
same, and audit logs stay quiet.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from sparkmirror.config.source import SourceConfig
from sparkmirror.errors import BrokerError
from sparkmirror.kafka import messages, topic_configs
from sparkmirror.kafka.admin import ConfigEntry
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.property_support import FORMAT, Properties, PropertySupport
from sparkmirror.kafka.topic_configs import Alteration
from sparkmirror.policy.filters import ConfigPropertyFilter

from .news import News

log = logging.getLogger(__name__)
_MOST_NAMED = 10
_UNREADABLE = "properties that cannot be read"


@dataclass(frozen=True, slots=True)
class Change:
    """One property of a remote topic that is not as it should be."""

    name: str
    operation: Literal["SET", "DELETE"]
    before: str
    after: str | None

    def __str__(self) -> str:
        after = "the cluster's default" if self.after is None else self.after
        return f"{self.name} from {self.before} to {after}"


@dataclass(frozen=True, slots=True)
class ConfigPlan:
    """What a sync would do: changes by remote topic; topics whose state on the target may not be read, with all there is to send;
    and topics whose properties cannot be read at the source."""

    changes: dict[str, tuple[Change, ...]]
    unseen: dict[str, tuple[Alteration, ...]]
    errors: dict[str, BrokerError]


def is_copied(entry: ConfigEntry, wanted: ConfigPropertyFilter) -> bool:
    """Whether a property of a source topic is the topic's affair at all, and not excluded."""
    return (
        not entry.read_only
        and not entry.sensitive
        and not entry.is_static_broker
        and wanted.matches(entry.name)
    )


def alterations(
    entries: Iterable[ConfigEntry], wanted: ConfigPropertyFilter, *, with_defaults: bool
) -> list[Alteration]:
    """What the remote topic of a source topic with these properties has to be told, whatever it has.

    A property that is at its default at the source goes back to the target's own default, unless `with_defaults`
    (`use.defaults.from=source`).
    """
    found = []
    for entry in entries:
        if not is_copied(entry, wanted):
            continue
        if entry.is_default and not with_defaults:
            if (
                entry.name == FORMAT
            ):  # may be set on the remote topic so that copying is possible at all
                continue
            found.append(Alteration(entry.name, "DELETE"))
        elif entry.value is not None:
            found.append(Alteration(entry.name, "SET", entry.value))
    return found


def changes(told: Iterable[Alteration], entries: Iterable[ConfigEntry]) -> tuple[Change, ...]:
    """Those alterations that make a difference to a remote topic with these properties.

    A value that the remote topic has only by default must still be set: the default may change, the copy may not.
    """
    present = {entry.name: entry for entry in entries}
    found = []
    for one in told:
        entry = present.get(one.name)
        own = entry.value if entry is not None and entry.is_set_on_topic else None
        if own != one.value:  # None: not set, or not to be set
            found.append(Change(one.name, one.operation, _shown(entry), one.value))
    return tuple(found)


def _shown(entry: ConfigEntry | None) -> str:
    if entry is None:
        return "nothing"
    value = "nothing" if entry.value is None else entry.value
    return value if entry.is_set_on_topic else f"{value} (not set on the topic)"


def plan(
    source: Cluster, target: Cluster, remotes: Mapping[str, str], config: SourceConfig
) -> ConfigPlan:
    """Look at both sides; `remotes` are the source topics by remote topic. Nothing is altered."""
    theirs = topic_configs.describe(source, sorted(set(remotes.values())))
    ours = topic_configs.describe(target, [r for r, t in remotes.items() if t in theirs.configs])
    wanted = config.config_property_filter()
    found = ConfigPlan({}, {}, dict(theirs.errors))
    for remote, topic in remotes.items():
        if topic not in theirs.configs:
            continue
        told = alterations(
            theirs.configs[topic], wanted, with_defaults=config.use_defaults_from == "source"
        )
        if remote in ours.configs:
            needed = changes(told, ours.configs[remote])
            if needed:
                found.changes[remote] = needed
        elif remote in ours.errors:
            found.unseen[remote] = tuple(told)
        # else it is gone from the target: created again at the next look
    return found


class TopicConfigSync:
    """Keeps the properties of remote topics as those of their source topics are.

    Invariant: nothing is told twice in a row, neither a change nor an error; a change that had to be made once more is.
    """

    def __init__(
        self,
        config: SourceConfig,
        source: Cluster,
        target: Cluster,
        label: str,
        support: PropertySupport,
    ) -> None:
        self._config = config
        self._source = source
        self._target = target
        self._label = label
        self._support = support
        self._news = News()

    def sync(self, remotes: Mapping[str, str]) -> None:
        """Once, for these source topics by remote topic. BrokerError UNSUPPORTED_VERSION: the target alters no properties."""
        found = plan(self._source, self._target, remotes, self._config)
        is_dry = self._config.sync_topic_configs_dry_run
        failed: dict[str, BrokerError] = {} if is_dry else self._alter(found)
        tell_left_out(self._support, self._target)
        for remote, needed in found.changes.items():
            taken = [one for one in needed if not self._support.objection(one.name, one.after)]
            if taken and remote not in failed:
                self._tell(remote, taken)
        unreadable = {t: e for t, e in found.errors.items() if messages.is_unavailable(e)}
        self._tell_unreadable(unreadable)
        for topic, error in (found.errors | failed).items():
            if topic not in unreadable and self._news.is_new(topic, str(error)):
                log.error("%s: %s", self._label, error)
        mentioned = found.changes.keys() | found.errors.keys() | failed.keys()
        self._news.keep({*mentioned, *([_UNREADABLE] if unreadable else ())})

    def _tell_unreadable(self, errors: Mapping[str, BrokerError]) -> None:
        """Topics whose properties we may not read: in one line, and again when their number changes."""
        errors = {t: e for t, e in errors.items() if e.code != messages.UNSUPPORTED_VERSION}
        if errors and self._news.is_new(_UNREADABLE, str(len(errors))):
            topic, error = next(iter(errors.items()))
            log.warning(
                "%s: the properties of %d topic(s) are not kept in step (%s, ...): %s Set sync.topic.configs.enabled=false to "
                "leave them alone.",
                self._label,
                len(errors),
                topic,
                error,
            )

    def _alter(self, found: ConfigPlan) -> dict[str, BrokerError]:
        changed: dict[str, Properties] = {
            remote: {change.name: change.after for change in needed}
            for remote, needed in found.changes.items()
        }
        unseen: dict[str, Properties] = {
            remote: {one.name: one.value for one in told} for remote, told in found.unseen.items()
        }
        return self._support.send(changed | unseen, self._send)

    def _send(self, properties: Mapping[str, Properties]) -> dict[str, BrokerError]:
        wanted = {
            remote: [Alteration(n, "DELETE" if v is None else "SET", v) for n, v in its.items()]
            for remote, its in properties.items()
            if its
        }
        failed = {}
        for remote, error in topic_configs.alter(self._target, wanted).items():
            if error is None or error.code == messages.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # gone meanwhile: no error
            if error.code == messages.UNSUPPORTED_VERSION:
                raise error
            failed[remote] = error
        return failed

    def _tell(self, remote: str, needed: Sequence[Change]) -> None:
        text = ", ".join(map(str, needed))
        if self._news.is_new(remote, text):
            verb = "would be altered" if self._config.sync_topic_configs_dry_run else "altered"
            log.info("%s: topic %s %s: %s.", self._label, remote, verb, text)


def tell_left_out(support: PropertySupport, target: Cluster) -> None:
    """Log which properties topics do not get; one line for the topics that have the same."""
    topics: dict[tuple[str, str], list[str]] = {}
    for one in support.news():
        topics.setdefault((one.name, one.why), []).append(one.topic)
    for (name, why), same in topics.items():
        more = f" and {len(same) - _MOST_NAMED} more" if len(same) > _MOST_NAMED else ""
        log.warning(
            "Property %s is left out on %s: %s. Topics: %s%s.",
            name,
            target.settings,
            why,
            ", ".join(same[:_MOST_NAMED]),
            more,
        )
