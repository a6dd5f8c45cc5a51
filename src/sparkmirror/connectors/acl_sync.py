"""The sync of ACLs: both clusters in, bindings created on the target, and removed where that was asked for.

What is removed must stand in the ledger: bindings that this flow has created, with their originals and the id of the cluster
that those came from.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from sparkmirror.config.source import SourceConfig
from sparkmirror.errors import BrokerError
from sparkmirror.formats import java_json
from sparkmirror.kafka import acls, messages
from sparkmirror.kafka.acls import AclBinding, Resource
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.denials import Operation

from .ledger import Fields, Ledger
from .news import News
from .topic_acls import (
    AclRules,
    Originals,
    acl_rules,
    originals,
    stale_bindings,
    wanted_bindings,
)

log = logging.getLogger(__name__)
_CLUSTER, _ORIGINALS = "source_cluster", "originals"


@dataclass(frozen=True, slots=True)
class AclPlan:
    """What a sync would do, and what it looked at."""

    create: tuple[AclBinding, ...]
    remove: tuple[AclBinding, ...]
    forgotten: tuple[AclBinding, ...]
    """Copied once, and on neither side any more."""
    originals: Mapping[AclBinding, Originals]
    """The source's bindings, by what they are on the target."""
    source_count: int


def plan(
    source: Cluster,
    target: Cluster,
    rules: AclRules,
    topics: Collection[str],
    copied: Mapping[AclBinding, Originals],
) -> AclPlan:
    """Look at both sides; `copied` are bindings that may be removed, with their originals. Nothing is altered.

    BrokerError SECURITY_DISABLED, naming the cluster, where there is no authorizer.
    """
    kinds = [Resource.TOPIC]
    if rules.groups or any(binding.resource == Resource.GROUP for binding in copied):
        kinds.append(Resource.GROUP)
    theirs = _describe(source, kinds)
    ours = set(_describe(target, kinds, "Alter"))
    wanted = wanted_bindings(rules, theirs, topics)
    stale = stale_bindings(rules, theirs, copied)
    return AclPlan(
        create=tuple(binding for binding in wanted if binding not in ours),
        remove=tuple(binding for binding in stale if binding in ours),
        forgotten=tuple(binding for binding in stale if binding not in ours),
        originals=originals(rules, theirs),
        source_count=len(theirs),
    )


def _describe(
    cluster: Cluster, kinds: Iterable[Resource], right: Operation = "Describe"
) -> list[AclBinding]:
    return [binding for kind in kinds for binding in acls.describe(cluster, kind, right)]


class TopicAclSync:
    """Copies bindings that the target lacks; removes what it copied, if it may.

    Invariants: the ledger names what this flow has created, never what it found there. A binding is removed only if the ledger
    names it, with the id that the source cluster has now, and if a complete answer of the source has none of its originals any
    more. An error of either cluster ends the round before anything is altered.
    """

    def __init__(
        self,
        config: SourceConfig,
        source: Cluster,
        target: Cluster,
        ledger: Ledger,
        label: str,
    ) -> None:
        self._config = config
        self._rules = acl_rules(config)
        self._source = source
        self._target = target
        self._ledger = ledger
        self._label = label
        self._news = News()
        self._hinted = False

    def sync(self, topics: Collection[str]) -> None:
        """Once; `topics` are the source topics that are copied now."""
        removes = self._config.sync_topic_acls_delete
        cluster_id = self._source.cluster_id() if removes else ""
        entered = self._entered(cluster_id) if removes else {}
        try:
            found = plan(self._source, self._target, self._rules, topics, entered)
        except BrokerError as error:
            if error.code not in (messages.SECURITY_DISABLED, messages.UNSUPPORTED_VERSION):
                raise
            self._hint(error)
            return
        if removes and self._source.cluster_id() != cluster_id:
            return  # it is not certain which cluster the bindings were read from
        if self._config.sync_topic_acls_dry_run:
            self._tell_dry_run(found)
            return
        outcomes = acls.create(self._target, found.create)
        created = self._settle("copied", outcomes)
        mentioned = {str(b) for b, error in outcomes.items() if error is not None}
        if removes:
            self._enter(created, found.originals, entered, cluster_id)
            mentioned |= self._remove(found, entered)
        self._news.keep(mentioned)

    def _hint(self, error: BrokerError) -> None:
        level = logging.DEBUG if self._hinted else logging.INFO
        self._hinted = True
        log.log(
            level,
            "%s: ACLs are not copied: %s Set sync.topic.acls.enabled=false if that is meant to be so.",
            self._label,
            error,
        )

    def _settle(
        self, verb: str, outcomes: Mapping[AclBinding, BrokerError | None]
    ) -> list[AclBinding]:
        """Tell what was done and what could not be; gives what was."""
        done = []
        for binding, error in outcomes.items():
            if error is None:
                done.append(binding)
                log.info("%s: %s the ACL %s.", self._label, verb, binding)
            elif self._news.is_new(str(binding), str(error)):
                log.warning("%s: %s", self._label, error)
        return done

    def _remove(self, found: AclPlan, entered: Collection[AclBinding]) -> set[str]:
        """Take away what the source no longer has; gives what there is to say of, still."""
        outcomes = acls.delete(self._target, found.remove)
        gone = [*self._settle("removed", outcomes), *found.forgotten]
        self._ledger.write({binding_name(binding): None for binding in gone})
        if entered and not found.source_count:
            if self._news.is_new("", "empty"):
                log.warning(
                    "%s: %s has no ACLs at all. Those that were copied from it stay; remove them yourself if that is meant.",
                    self._label,
                    self._source.settings,
                )
            return {""}
        return {str(binding) for binding, error in outcomes.items() if error is not None}

    def _tell_dry_run(self, found: AclPlan) -> None:
        mentioned = set()
        for verb, bindings in (("created", found.create), ("removed", found.remove)):
            for binding in bindings:
                mentioned.add(str(binding))
                if self._news.is_new(str(binding), verb):
                    log.info("%s: would be %s: ACL %s.", self._label, verb, binding)
        self._news.keep(mentioned)

    # -- what may be removed ------------------------------------------------------------------

    def _entered(self, cluster_id: str) -> dict[AclBinding, Originals]:
        """The bindings of the ledger that came from this very cluster, each with its originals."""
        found = {}
        for name, fields in self._ledger.entries().items():
            binding, known = parse_binding(name), parse_bindings(str(fields.get(_ORIGINALS, "")))
            if binding is not None and known and fields.get(_CLUSTER) == cluster_id:
                found[binding] = known
        return found

    def _enter(
        self,
        created: Iterable[AclBinding],
        now: Mapping[AclBinding, Originals],
        entered: Mapping[AclBinding, Originals],
        cluster_id: str,
    ) -> None:
        """Write down what was created, and the originals that have come to what was entered before."""
        new: dict[str, Fields] = {}
        for binding in {*created, *entered}:
            before = entered.get(binding, frozenset())
            known = before | now.get(binding, frozenset())
            if known != before:
                new[binding_name(binding)] = {
                    _CLUSTER: cluster_id,
                    _ORIGINALS: bindings_text(known),
                }
        self._ledger.write(new)


def binding_name(binding: AclBinding) -> str:
    """A binding as the ledger names it."""
    return java_json.encode(_document(binding)).decode()


def bindings_text(bindings: Iterable[AclBinding]) -> str:
    """Several in one field of the ledger."""
    return java_json.encode([_document(binding) for binding in sorted(bindings)]).decode()


def parse_binding(name: str) -> AclBinding | None:
    """The binding of a name; None if there is none in it."""
    return _binding(_decoded(name))


def parse_bindings(text: str) -> Originals:
    """The bindings of a field; none at all if one of them cannot be read."""
    document = _decoded(text)
    found = [_binding(item) for item in document] if isinstance(document, list) else []
    known = frozenset(binding for binding in found if binding is not None)
    return frozenset() if None in found else known


def _document(binding: AclBinding) -> list[str | int]:
    return [
        binding.resource,
        binding.name,
        binding.pattern,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission,
    ]


def _decoded(text: str) -> object:
    try:
        document: object = java_json.decode(text.encode())
    except ValueError:
        return None
    return document


def _binding(document: object) -> AclBinding | None:
    match document:
        case [
            int(resource),
            str(topic),
            int(pattern),
            str(principal),
            str(host),
            int(operation),
            int(permission),
        ]:
            return AclBinding(resource, topic, pattern, principal, host, operation, permission)
    return None
