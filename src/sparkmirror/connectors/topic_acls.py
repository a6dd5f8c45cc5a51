"""ACLs in step: the bindings of both sides in, what to create and to remove on the target out. No input or output here.

The rules are MirrorMaker 2's, its quirks included: names decide, not topics that exist, so the wildcard `*` becomes `A.*`,
which is no wildcard. Prefixes, groups and removal are ours, and off unless asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from sparkmirror.config.source import SourceConfig
from sparkmirror.kafka.acls import AclBinding, AclOperation, Pattern, Permission, Resource
from sparkmirror.policy.filters import should_replicate_topic

_GROUP_OPERATIONS = (
    AclOperation.ALL,
    AclOperation.READ,
    AclOperation.DESCRIBE,
    AclOperation.DELETE,
)
_PROBES = ("x", "-1.y")

Originals = frozenset[AclBinding]


@dataclass(frozen=True, slots=True)
class AclRules:
    """How a flow copies bindings."""

    remote_name: Callable[[str], str]
    is_replicated: Callable[[str], bool]
    prefixes: bool = False
    groups: bool = False

    def mapped(self, binding: AclBinding) -> AclBinding | None:
        """What a binding of the source is on the target, whether its topic is replicated or not; None if it is never copied."""
        if binding.resource == Resource.GROUP:
            return binding if self._is_copied_group(binding) else None
        if binding.resource != Resource.TOPIC or _is(binding, AclOperation.WRITE):
            return None
        if binding.pattern == Pattern.LITERAL:
            name: str | None = self.remote_name(binding.name)
        elif binding.pattern == Pattern.PREFIXED and self.prefixes:
            name = remote_prefix(self.remote_name, binding.name)
        else:
            name = None
        if name is None:
            return None
        # Whoever may do everything to the original may read the copy: only the replicator writes it.
        is_all = _is(binding, AclOperation.ALL)
        operation = AclOperation.READ if is_all else binding.operation
        return replace(binding, name=name, operation=int(operation))

    def is_wanted(self, binding: AclBinding, topics: Collection[str]) -> bool:
        """Whether a binding of the source concerns this flow, which copies `topics` now."""
        if binding.resource == Resource.GROUP:
            return True
        if binding.pattern == Pattern.PREFIXED:
            return any(topic.startswith(binding.name) for topic in topics)
        return self.is_replicated(binding.name)

    def _is_copied_group(self, binding: AclBinding) -> bool:
        patterns = (Pattern.LITERAL, Pattern.PREFIXED) if self.prefixes else (Pattern.LITERAL,)
        return (
            self.groups and binding.pattern in patterns and binding.operation in _GROUP_OPERATIONS
        )


def acl_rules(config: SourceConfig) -> AclRules:
    """The rules that a connector's settings make."""
    topic_filter = config.topic_filter()
    return AclRules(
        remote_name=lambda name: config.policy.format_remote_topic(config.source_alias, name),
        is_replicated=lambda name: should_replicate_topic(
            config.policy, topic_filter, config.heartbeats_replication, config.target_alias, name
        ),
        prefixes=config.sync_topic_acls_prefixed,
        groups=config.sync_group_acls,
    )


def remote_prefix(remote_name: Callable[[str], str], prefix: str) -> str | None:
    """What the remote names of all topics with this prefix begin with; None if the policy makes no prefix of it."""
    found = set()
    for probe in _PROBES:
        remote = remote_name(prefix + probe)
        if not remote.endswith(probe):
            return None
        found.add(remote.removesuffix(probe))
    return found.pop() if len(found) == 1 else None


def wanted_bindings(
    rules: AclRules, source: Iterable[AclBinding], topics: Collection[str]
) -> list[AclBinding]:
    """All that the target should have because of the source, each once, in order."""
    found = (rules.mapped(binding) for binding in source if rules.is_wanted(binding, topics))
    return sorted({binding for binding in found if binding is not None})


def originals(rules: AclRules, source: Iterable[AclBinding]) -> dict[AclBinding, Originals]:
    """The bindings of the source by what they are on the target, whether their topics are replicated or not."""
    found: dict[AclBinding, Originals] = {}
    for binding in source:
        copy = rules.mapped(binding)
        if copy is not None:
            found[copy] = found.get(copy, frozenset()) | {binding}
    return found


def stale_bindings(
    rules: AclRules, source: Collection[AclBinding], copied: Mapping[AclBinding, Originals]
) -> list[AclBinding]:
    """Of the bindings that this flow has copied, each with its originals, those of which no original is left at the source.

    What they were copied from counts, not what the rules of now would make of it: with other settings, originals that are still
    there make other copies, or none. A source without any bindings proves nothing: more likely its authorizer was replaced, or it
    is another cluster.
    """
    if not source:
        return []
    there, kept = frozenset(source), originals(rules, source)
    return sorted(
        copy for copy, known in copied.items() if copy not in kept and there.isdisjoint(known)
    )


def _is(binding: AclBinding, operation: AclOperation) -> bool:
    return binding.permission == Permission.ALLOW and binding.operation == operation
