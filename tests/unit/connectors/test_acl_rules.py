"""Which ACLs are copied, under what name, and which may be taken away again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.source import SourceConfig
from sparkmirror.connectors.acl_sync import (
    binding_name,
    bindings_text,
    parse_binding,
    parse_bindings,
)
from sparkmirror.connectors.topic_acls import (
    AclRules,
    acl_rules,
    originals,
    remote_prefix,
    stale_bindings,
    wanted_bindings,
)
from sparkmirror.kafka.acls import AclBinding, AclOperation, Pattern, Permission, Resource

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def binding(
    name: str = "topic",
    operation: AclOperation = AclOperation.READ,
    permission: Permission = Permission.ALLOW,
    pattern: Pattern = Pattern.LITERAL,
    resource: Resource = Resource.TOPIC,
) -> AclBinding:
    return AclBinding(resource, name, pattern, "User:kafka", "10.0.0.1", operation, permission)


def rules(**keys: str) -> AclRules:
    given = {
        "name": "acls",
        "connector.class": "MirrorSourceConnector",
        "source.cluster.alias": "source",
        "target.cluster.alias": "target",
        **{key.replace("_", "."): value for key, value in keys.items()},
    }
    return acl_rules(SourceConfig.parse(given))


def copied(
    given: AclRules, *bindings: AclBinding, topics: tuple[str, ...] = ()
) -> list[AclBinding]:
    return wanted_bindings(given, bindings, topics)


def test_permission_to_write_is_not_copied() -> None:
    """C-046: only the replicator writes to a copy."""
    assert copied(rules(), binding(operation=AclOperation.WRITE)) == []
    denied = binding(operation=AclOperation.WRITE, permission=Permission.DENY)
    assert copied(rules(), denied) == [replace(denied, name="source.topic")]


def test_permission_to_do_everything_becomes_permission_to_read() -> None:
    """C-046."""
    everything = binding(operation=AclOperation.ALL)
    assert copied(rules(), everything) == [
        replace(everything, name="source.topic", operation=AclOperation.READ)
    ]
    denied = replace(everything, permission=Permission.DENY)
    assert copied(rules(), denied) == [replace(denied, name="source.topic")]


@pytest.mark.parametrize(
    "operation",
    [o for o in AclOperation if o not in (AclOperation.ANY, AclOperation.ALL, AclOperation.WRITE)],
)
def test_other_operations_are_copied_as_they_are(operation: AclOperation) -> None:
    one = binding(operation=operation)
    assert copied(rules(), one) == [replace(one, name="source.topic")]


def test_the_filter_counts_by_name_whether_the_topic_exists_or_not() -> None:
    given = rules(topics="a.*", topics_exclude="a2")
    bindings = [binding(name) for name in ("a1", "a2", "b", "target.a1", "__a", "a.internal")]
    assert [b.name for b in copied(given, *bindings)] == ["source.a.internal", "source.a1"]


def test_the_wildcard_becomes_a_plain_name_as_in_mirrormaker() -> None:
    assert [b.name for b in copied(rules(), binding("*"))] == ["source.*"]
    same = rules(replication_policy_class=IDENTITY)
    assert [b.name for b in copied(same, binding("*"))] == ["*"]


def test_prefixes_and_groups_are_copied_only_if_asked_for() -> None:
    prefix = binding("ord", pattern=Pattern.PREFIXED)
    group = binding("readers", resource=Resource.GROUP)
    group_prefix = binding("read", resource=Resource.GROUP, pattern=Pattern.PREFIXED)
    everything = (prefix, group, group_prefix)
    topics = ("orders",)
    assert copied(rules(), *everything, topics=topics) == []
    on = {"sync_topic_acls_prefixed_enabled": "true"}
    assert copied(rules(**on), *everything, topics=topics) == [replace(prefix, name="source.ord")]
    groups = {"sync_group_acls_enabled": "true"}
    assert copied(rules(**groups), *everything, topics=topics) == [group]
    assert copied(rules(**on, **groups), *everything, topics=topics) == sorted(
        [replace(prefix, name="source.ord"), group, group_prefix]
    )


def test_a_prefix_without_topics_of_this_flow_is_left_alone() -> None:
    on = rules(sync_topic_acls_prefixed_enabled="true")
    prefix = binding("ord", pattern=Pattern.PREFIXED)
    assert copied(on, prefix, topics=("payments",)) == []
    everything = replace(prefix, operation=AclOperation.ALL)
    (found,) = copied(on, everything, topics=("orders",))
    assert found.operation == AclOperation.READ


def test_groups_keep_their_names_and_only_a_groups_operations_are_copied() -> None:
    on = rules(sync_group_acls_enabled="true")
    wanted = (AclOperation.ALL, AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE)
    bindings = [binding("g", operation, resource=Resource.GROUP) for operation in AclOperation]
    assert [b.operation for b in copied(on, *bindings)] == list(wanted)


def test_the_prefix_of_remote_names() -> None:
    assert remote_prefix(lambda name: f"A.{name}", "ord") == "A.ord"
    assert remote_prefix(lambda name: name, "ord") == "ord"
    assert remote_prefix(lambda name: f"{name}.replica", "ord") is None
    assert remote_prefix(lambda name: f"{len(name)}-{name}", "ord") is None
    same = rules(replication_policy_class=IDENTITY)
    # The name is renamed only as a whole, not as the beginning of others.
    assert same.mapped(binding("heartbeats", pattern=Pattern.PREFIXED)) is None
    on = rules(replication_policy_class=IDENTITY, sync_topic_acls_prefixed_enabled="true")
    found = on.mapped(binding("heartbeats", pattern=Pattern.PREFIXED))
    assert found is not None
    assert found.name == "heartbeats"


def test_what_was_copied_is_stale_when_no_original_is_left() -> None:
    given = rules(topics="a.*")
    read, everything = binding("a1"), binding("a1", AclOperation.ALL)
    copy = replace(read, name="source.a1")
    mine = {copy: frozenset({read})}
    other = binding("b")
    assert stale_bindings(given, [read, other], mine) == []
    assert stale_bindings(given, [everything, other], mine) == []  # it makes the same copy
    assert stale_bindings(given, [other], mine) == [copy]
    assert stale_bindings(given, [other], {}) == []  # made by somebody else


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"replication_policy_separator": "_"},
        {"replication_policy_class": IDENTITY},
        {"topics": "b"},
    ],
)
def test_other_settings_take_nothing_away_whose_original_is_there(keys: dict[str, str]) -> None:
    """Prefixes and groups are off again, names are made otherwise, fewer topics are copied."""
    before = rules(sync_topic_acls_prefixed_enabled="true", sync_group_acls_enabled="true")
    source = [
        binding("a1", AclOperation.ALL),
        binding("a", pattern=Pattern.PREFIXED),
        binding("g", resource=Resource.GROUP),
    ]
    mine = originals(before, source)
    assert len(mine) == 3
    assert stale_bindings(rules(**keys), source, mine) == []
    for gone in source:
        left = [one for one in source if one != gone]
        assert stale_bindings(rules(**keys), left, mine) == [before.mapped(gone)]


def test_a_copy_has_all_the_originals_that_make_it() -> None:
    read, everything, other = binding(), binding(operation=AclOperation.ALL), binding("b")
    never = binding(operation=AclOperation.WRITE)
    assert originals(rules(topics="c"), [read, everything, other, never]) == {
        replace(read, name="source.topic"): {read, everything},
        replace(other, name="source.b"): {other},
    }


def test_a_filter_that_became_narrower_takes_nothing_away() -> None:
    mine = {replace(binding("a1"), name="source.a1"): frozenset({binding("a1")})}
    assert stale_bindings(rules(topics="b"), [binding("a1")], mine) == []
    prefix = binding("a", pattern=Pattern.PREFIXED)
    on = rules(sync_topic_acls_prefixed_enabled="true")
    assert stale_bindings(on, [prefix], {replace(prefix, name="source.a"): frozenset()}) == []


def test_a_source_without_any_acls_takes_nothing_away() -> None:
    copy = replace(binding(), name="source.topic")
    assert stale_bindings(rules(), [], {copy: frozenset({binding()})}) == []


def test_a_binding_reads_well() -> None:
    assert str(binding("a", pattern=Pattern.PREFIXED)) == (
        "ALLOW READ to User:kafka from 10.0.0.1 on topic a (prefix)"
    )
    assert str(replace(binding(), operation=99)).startswith("ALLOW 99 to")


BINDINGS = st.builds(
    AclBinding,
    st.sampled_from([2, 3]),
    st.text(),
    st.sampled_from([3, 4]),
    st.text(),
    st.text(),
    st.integers(0, 127),
    st.integers(0, 127),
)


@given(BINDINGS)
def test_the_ledger_names_a_binding_exactly(one: AclBinding) -> None:
    assert parse_binding(binding_name(one)) == one


@given(st.frozensets(BINDINGS, max_size=3))
def test_the_ledger_keeps_originals_exactly(some: frozenset[AclBinding]) -> None:
    assert parse_bindings(bindings_text(some)) == some


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1]", '[[2,"a",3,"p","h",3,3],[2]]'])
def test_originals_that_cannot_be_read_are_none_at_all(text: str) -> None:
    assert parse_bindings(text) == frozenset()


@pytest.mark.parametrize("name", ["", "topic", "[]", '[2,"a",3]', "{}"])
def test_other_names_are_no_bindings(name: str) -> None:
    assert parse_binding(name) is None
