"""What is not allowed: the privileges that a flow needs and what brokers say is allowed in, the missing ACLs out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from sparkmirror.kafka.denials import Access, Operation, sentence
from sparkmirror.kafka.rights import Rights, TopicRights
from sparkmirror.preflight.facts import SideRights
from sparkmirror.preflight.findings import Finding, Level, note, ok, some
from sparkmirror.preflight.privileges import Privilege

_CHECK = "acl"
# What fails if it is missing; what is kept in step beside the records only lags behind.
_LATER: tuple[Operation, ...] = ("Alter", "AlterConfigs", "Delete")
_OPTIONAL = "there is a flow"


def access_findings(
    privileges: Sequence[Privilege],
    seen: SideRights,
    families: Mapping[str, Sequence[str]],
    principal: str,
    where: str,
) -> list[Finding]:
    """One finding for each operation that is missing, with the resources that lack it; `families` has the names of each."""
    missing: dict[tuple[Privilege, Operation], list[str]] = {}
    untold = 0
    for privilege in privileges:
        for name in families.get(privilege.family, ()) if privilege.family else (privilege.name,):
            allowed = _allowed(privilege, name, seen)
            if allowed is None:
                untold += 1
            elif not allowed:
                missing.setdefault((privilege, privilege.operation), []).append(name)
    found = [
        _finding(privilege, names, principal, where) for (privilege, _), names in missing.items()
    ]
    if untold:
        found.append(
            note(
                _CHECK,
                f"{untold} right(s) on {where} cannot be seen beforehand: a topic does not exist yet, or brokers do not "
                f"tell.",
            )
        )
    if not missing:
        found.append(
            ok(
                _CHECK,
                f"{principal or 'This client'} lacks none of the rights that can be seen on {where}.",
            )
        )
    return found


def _allowed(privilege: Privilege, name: str, seen: SideRights) -> bool | None:
    """None if brokers do not tell."""
    if privilege.resource == "cluster":
        return _has(seen.cluster, privilege.operation)
    if privilege.resource == "group":
        return _has(seen.groups.get(name), privilege.operation)
    topic = seen.topics.get(name)
    if privilege.creates:
        return _may_create(name, topic, seen)
    if topic is None:
        return None
    if privilege.when.startswith(_OPTIONAL) and not topic.exists:
        return True  # there is no such flow, so nothing is needed
    if topic.hidden:  # whoever may do anything with it may describe it
        return False
    if not topic.exists:
        return True if privilege.operation == "Describe" else None
    return _has(topic.rights, privilege.operation)


def _may_create(name: str, topic: TopicRights | None, seen: SideRights) -> bool | None:
    if topic is not None and topic.exists:
        return True
    creation = seen.creations.get(name)
    if creation is None:
        return True if seen.cluster is not None and "Create" in seen.cluster else None
    return creation.error is None or creation.error.code not in (29, 31)


def _has(rights: Rights | None, operation: Operation) -> bool | None:
    return None if rights is None else operation in rights


def _finding(privilege: Privilege, names: Sequence[str], principal: str, where: str) -> Finding:
    shown = "" if privilege.resource == "cluster" else some(names)
    access = Access(privilege.operation, privilege.resource, shown, principal)
    purpose = (
        f" ({privilege.why}; needed with {privilege.when})"
        if privilege.when
        else f" ({privilege.why})"
    )
    who = principal or "The principal of this client"
    first = Access(privilege.operation, privilege.resource, names[0], principal)
    _, _, remedy = sentence(first).partition(". ")
    level = (
        Level.WARNING
        if privilege.operation in _LATER or privilege.when.startswith("sync.topic")
        else Level.ERROR
    )
    return Finding(level, _CHECK, f"{who} lacks the ACL {access} on {where}{purpose}.", remedy)


def families_of(
    topics: Iterable[str], remote: Iterable[str], groups: Iterable[str]
) -> dict[str, list[str]]:
    return {"topics": list(topics), "remote": list(remote), "groups": list(groups)}
