"""The page docs/acls.md: no input, the page that `sparkmirror.preflight.privileges` makes out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sparkmirror.kafka.denials import Operation
from sparkmirror.preflight.privileges import (
    IMPLIED,
    Names,
    Part,
    Parts,
    Privilege,
    Side,
    needed,
)

PAGE = Path(__file__).parents[3] / "docs" / "acls.md"
_SOURCE, _TARGET = "A", "B"
_NAMES = Names(
    source_alias=_SOURCE,
    target_alias=_TARGET,
    topics="the topics that are copied",
    remote="their copies",
    groups="the groups that are followed",
    offset_syncs=f"mm2-offset-syncs.{_TARGET}.internal",
    checkpoints=f"{_SOURCE}.checkpoints.internal",
    opposite_checkpoints=f"{_TARGET}.checkpoints.internal",
    heartbeats="heartbeats",
    dead_letters="errors.deadletterqueue.topic.name",
    worker_group="group.id",
    worker_topics=("config.storage.topic", "offset.storage.topic", "status.storage.topic"),
)
_EVERYTHING = Parts(
    group_offsets=True, topic_deletes=True, placed=True, query=True, dead_letters=True
)
_USUAL = Parts(group_offsets=True)
_PARTS: dict[Part, str] = {
    "source": "source connector",
    "checkpoint": "checkpoint connector",
    "heartbeat": "heartbeat connector",
    "worker": "worker",
}
_SIDES: tuple[tuple[Side, str], ...] = (
    ("source", "On the source cluster"),
    ("target", "On the target cluster"),
    ("worker", "On the worker's cluster"),
)
_HEAD = f"""# ACLs

Made from `sparkmirror.preflight.privileges` by `python -m sparkmirror.tools.acls_page`; do not edit it by hand. A test runs
a whole flow without a query with exactly these ACLs on both sides, and takes each one away to see that the message names it
(`tests/broker/test_least_privilege.py`). `sparkmirror check` looks for the same ([check.md](check.md)).

The flow of the tables is `{_SOURCE}->{_TARGET}` with the default policy. Operations are those of `kafka-acls`. An operation
that another one includes is not listed: Read, Write, Delete and Alter include Describe, AlterConfigs includes
DescribeConfigs. Create on a topic may be given as Create on the cluster instead; it is not needed where somebody else
creates the topic. Names in italics stand for several resources: give the right by a prefix (`--resource-pattern-type
prefixed --topic {_SOURCE}.`), or on each.
"""
_FOOT = f"""## Notes

- In dedicated mode (`sparkmirror run`) the worker's cluster is the target, its group is `{_SOURCE}-mm2`, and its topics are
  `mm2-configs.{_SOURCE}.internal`, `mm2-offsets.{_SOURCE}.internal` and `mm2-status.{_SOURCE}.internal`.
- The copies are written by the client that `producer.override.*` and `target.cluster.*` describe, positions by that of the
  worker's `producer.*`: where these log in as different principals, each needs its own part.
- Topics without Describe (which Read includes) cannot be seen, so a pattern in `topics` does not match them; `check` finds
  those that are named one by one. The same holds for groups.
- Heartbeats topics of the source are among the topics that are copied, unless `heartbeats.replication.enabled=false`.
- Brokers before 2.8 want IdempotentWrite on the target cluster besides.
- A flow with transforms that route records needs Create, Write, Read and Alter on the topics they are sent to. So does one
  with a query that gives a `topic`; which topics these are is up to the records, so `check` cannot look for them.

## Commands

For principals `User:reader` at the source and `User:writer` at the target, in dedicated mode, with the topic `orders` and
the group `shop`, with default settings and `sync.group.offsets.enabled=true`:

```
{{commands}}
```

## What a denied operation looks like

Each names what was asked, the ACL, the resource and the principal, where the client can know it (from `username` of PLAIN
and SCRAM, and from its certificate; brokers do not tell):

```
Writing to A.orders-0 on cluster B (…): TOPIC_AUTHORIZATION_FAILED. User:writer lacks the ACL Write on topic A.orders. Add it:
kafka-acls --bootstrap-server … --add --allow-principal 'User:writer' --operation Write --topic A.orders.
```
"""
_FAMILIES = {"topics": "orders", "remote": f"{_SOURCE}.orders", "groups": "shop"}
_WORKER_NAMES = {
    "group.id": f"{_SOURCE}-mm2",
    **{
        f"{role}.storage.topic": f"mm2-{word}.{_SOURCE}.internal"
        for role, word in (("config", "configs"), ("offset", "offsets"), ("status", "status"))
    },
}


def acls_page() -> str:
    """The whole page."""
    wanted = needed(_NAMES, _EVERYTHING)
    tables = [
        f"## {title}\n\n{_table([one for one in wanted if one.side == side])}"
        for side, title in _SIDES
    ]
    usual = [one for one in needed(_NAMES, _USUAL) if not one.when.startswith("there is a flow")]
    return "\n".join([_HEAD, *tables, _FOOT.format(commands="\n".join(_commands(usual)))])


def _table(privileges: Iterable[Privilege]) -> str:
    rows = "".join(f"| {' | '.join(_row(one))} |\n" for one in privileges)
    return f"| resource | operation | who | for what | only with |\n|---|---|---|---|---|\n{rows}"


def _row(one: Privilege) -> tuple[str, ...]:
    if one.resource == "cluster":
        resource = "cluster"
    else:
        resource = f"{one.resource} " + (f"*{one.name}*" if one.family else f"`{one.name}`")
    keys = ("sync.", "target.", "transform.", "errors.")
    when = f"`{one.when}`" if one.when.startswith(keys) else one.when
    return resource, one.operation, _PARTS[one.part], one.why, when


def _commands(privileges: Iterable[Privilege]) -> list[str]:
    """One line for each resource, with all that is to be allowed on it."""
    together: dict[tuple[str, str], list[Operation]] = {}
    for one in privileges:
        side = "source" if one.side == "source" else "target"
        name = _FAMILIES.get(one.family) or _WORKER_NAMES.get(one.name, one.name)
        option = "--cluster" if one.resource == "cluster" else f"--{one.resource} {name}"
        operations = together.setdefault((side, option), [])
        if one.operation not in operations:
            operations.append(one.operation)
    return [
        f"kafka-acls --bootstrap-server {side}:9092 --add --allow-principal User:{'reader' if side == 'source' else 'writer'} "
        f"{option} {' '.join(f'--operation {operation}' for operation in _without_included(operations))}"
        for (side, option), operations in sorted(together.items())
    ]


def _without_included(operations: list[Operation]) -> list[Operation]:
    included = {implied for one in operations for implied in IMPLIED.get(one, ())}
    return [one for one in operations if one not in included]


def main() -> None:
    PAGE.write_text(acls_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
