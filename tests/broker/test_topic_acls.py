"""ACLs kept in step, between names on one real cluster whose ACLs count: `t` is the source's, `A.t` its copy's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from cluster_pair import ClusterPair
from copying import settings_of
from kafka_tools import QUICK_JVM, create_topic, wait_for
from watching import Watching, connector_config, worker_config

from sparkmirror.connectors.acl_sync import TopicAclSync
from sparkmirror.connectors.ledger import Ledger
from sparkmirror.connectors.source_settings import source_settings
from sparkmirror.kafka import acls
from sparkmirror.kafka.acls import AclBinding, AclOperation, Pattern, Permission, Resource
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.tools.clusters import KafkaCluster

Unique = Callable[[str], str]
READ, WRITE, ALL, DESCRIBE = (
    AclOperation.READ,
    AclOperation.WRITE,
    AclOperation.ALL,
    AclOperation.DESCRIBE,
)
ALLOW, DENY = Permission.ALLOW, Permission.DENY
_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


class Guarded:
    """A cluster with ACLs on topics of one test; everything else on it is allowed."""

    def __init__(self, cluster: KafkaCluster, unique: Unique) -> None:
        self.bootstrap = cluster.bootstrap
        self.client = Cluster(settings_of("A", cluster))
        self.client.refresh([])
        self.topic = unique("t")
        self.offsets = unique("offsets")
        create_topic(self.bootstrap, self.topic)

    def acl(
        self,
        name: str,
        operation: AclOperation,
        permission: Permission = ALLOW,
        pattern: Pattern = Pattern.LITERAL,
        resource: Resource = Resource.TOPIC,
        who: str = "reader",
    ) -> AclBinding:
        return AclBinding(resource, name, pattern, f"User:{who}", "*", operation, permission)

    def add(self, *bindings: AclBinding) -> None:
        assert not any(acls.create(self.client, bindings).values())
        wait_for("the ACLs are there", lambda: set(bindings) <= self.all())

    def remove(self, *bindings: AclBinding) -> None:
        assert not any(acls.delete(self.client, bindings).values())
        wait_for("the ACLs are gone", lambda: not set(bindings) & self.all())

    def all(self) -> set[AclBinding]:
        return {b for kind in Resource for b in acls.describe(self.client, kind)}

    def on(self, name: str) -> set[AclBinding]:
        return {binding for binding in self.all() if binding.name == name}

    def entered(self) -> int:
        """How many ACLs a flow could remove, as its ledger says."""
        settings = source_settings(self.config(), worker_config(self.bootstrap, self.offsets))
        return len(Ledger(self.client, settings.store, "synced-acls").entries())

    def config(self, **keys: str) -> dict[str, str]:
        keys = {"sync_topic_acls_enabled": "true", **keys}
        return connector_config(self.bootstrap, self.bootstrap, f"{self.topic}.*", **keys)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    directory = tmp_path_factory.mktemp("acls")
    with KafkaCluster("acls", 1, directory, _AUTHORIZER, jvm=QUICK_JVM) as found:
        yield found


@pytest.fixture
def guarded(cluster: KafkaCluster, unique: Unique) -> Iterator[Guarded]:
    found = Guarded(cluster, unique)
    yield found
    found.client.close()


def test_acls_are_copied_by_mirrormakers_rules_and_never_removed(guarded: Guarded) -> None:
    g, topic = guarded, guarded.topic
    missing = f"{topic}-not-there-yet"
    originals = [
        g.acl(topic, READ),
        g.acl(topic, WRITE),
        g.acl(topic, ALL, who="owner"),
        g.acl(topic, ALL, DENY, who="nobody"),
        g.acl(topic, WRITE, DENY),
        g.acl(missing, DESCRIBE),
        g.acl(topic, READ, pattern=Pattern.PREFIXED, who="prefix"),
        g.acl(f"{topic}-group", READ, resource=Resource.GROUP),
        g.acl("other", READ),
    ]
    g.add(*originals)
    remote = f"A.{topic}"
    wanted = {
        g.acl(remote, READ),
        g.acl(remote, READ, who="owner"),
        g.acl(remote, ALL, DENY, who="nobody"),
        g.acl(remote, WRITE, DENY),
    }
    with Watching(g.config(), g.offsets):
        wait_for("the ACLs are copied", lambda: g.on(remote) == wanted)
        assert g.on(f"A.{missing}") == {g.acl(f"A.{missing}", DESCRIBE)}
        g.remove(originals[0])
        late = g.acl(topic, DESCRIBE, who="late")
        g.add(late)
        wait_for("the next one is copied", lambda: g.acl(remote, DESCRIBE, who="late") in g.all())
    assert g.on(remote) == wanted | {g.acl(remote, DESCRIBE, who="late")}
    assert not g.on("A.other")
    assert not [b for b in g.all() if b.name.startswith("A.") and b.pattern != Pattern.LITERAL]


def test_removal_takes_only_what_was_copied_also_after_a_restart(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    g, topic, remote = guarded, guarded.topic, f"A.{guarded.topic}"
    first, second, third = (g.acl(topic, READ, who=who) for who in ("first", "second", "third"))
    by_hand = [g.acl(remote, WRITE, who="mirror"), g.acl(remote, READ, who="analyst")]
    g.add(first, second, third, *by_hand)
    config = g.config(sync_topic_acls_delete_enabled="true")
    copies = [g.acl(remote, READ, who=who) for who in ("first", "second", "third")]
    with Watching(config, g.offsets):
        wait_for("the ACLs are copied", lambda: g.on(remote) == {*copies, *by_hand})
        g.remove(first)
        wait_for("its copy is removed", lambda: g.on(remote) == {*copies[1:], *by_hand})
        wait_for("it is struck out", lambda: g.entered() == 2)
    g.remove(second)
    with caplog.at_level(logging.INFO), Watching(config, g.offsets):
        wait_for("it is removed later, too", lambda: g.on(remote) == {copies[2], *by_hand})
        wait_for("it is told", lambda: "removed the ACL" in caplog.text)
    (said,) = [m for m in caplog.messages if "removed the ACL" in m]
    assert f"ALLOW READ to User:second from * on topic {remote}" in said


def test_removal_needs_proof(
    guarded: Guarded, cluster_pair: ClusterPair, caplog: pytest.LogCaptureFixture
) -> None:
    """A source without an authorizer, and another cluster than the one they came from, take nothing away."""
    caplog.set_level(logging.INFO)
    g, remote = guarded, f"A.{guarded.topic}"
    gone, kept = g.acl(g.topic, READ, who="gone"), g.acl(g.topic, READ, who="kept")
    g.add(gone, kept)
    props = g.config(sync_topic_acls_delete_enabled="true")
    with Watching(props, g.offsets):
        wait_for("the ACLs are copied", lambda: len(g.on(remote)) == 2)
        wait_for("they are written down", lambda: g.entered() == 2)
    g.remove(gone)
    copies = g.on(remote)
    settings = source_settings(props, worker_config(g.bootstrap, g.offsets))
    unguarded = Cluster(settings_of("A", cluster_pair.source))
    ledger = Ledger(g.client, settings.store, "synced-acls")
    for source in (unguarded, g.client):
        if source is g.client:  # the same bindings, but they came from elsewhere
            entries = dict(ledger.entries())
            ledger.write({k: {**v, "source_cluster": "elsewhere"} for k, v in entries.items()})
        sync = TopicAclSync(settings.config, source, g.client, ledger, "test")
        sync.sync({g.topic})
        assert g.on(remote) == copies
    unguarded.close()
    assert "removed the ACL" not in caplog.text
    ledger.write(entries)
    sync.sync({g.topic})
    wait_for("now it is removed", lambda: g.on(remote) == {g.acl(remote, READ, who="kept")})


def test_other_settings_take_nothing_away_whose_original_is_there(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    """Prefixes and groups switched off again, another separator; and what somebody else had made already stays for good."""
    caplog.set_level(logging.INFO)
    g, topic = guarded, guarded.topic
    create_topic(g.bootstrap, g.offsets, 3, configs={"cleanup.policy": "compact"})
    literal, everything = g.acl(topic, READ), g.acl(topic, ALL)
    prefix = g.acl(topic, READ, pattern=Pattern.PREFIXED)
    group = g.acl(f"{topic}-group", READ, resource=Resource.GROUP)
    shared = g.acl(topic, DESCRIBE, who="shared")
    held = replace(shared, name=f"A.{topic}")
    g.add(literal, everything, prefix, group, shared, held)
    copies = {replace(b, name=f"A.{topic}") for b in (literal, prefix)}
    before = {
        "sync_topic_acls_delete_enabled": "true",
        "sync_topic_acls_prefixed_enabled": "true",
        "sync_group_acls_enabled": "true",
    }
    now = {"sync_topic_acls_delete_enabled": "true", "replication_policy_separator": "_"}

    def sync(**keys: str) -> None:
        settings = source_settings(g.config(**keys), worker_config(g.bootstrap, g.offsets))
        ledger = Ledger(g.client, settings.store, "synced-acls")
        TopicAclSync(settings.config, g.client, g.client, ledger, "test").sync({topic})

    sync(**before)
    wait_for("the ACLs are copied", lambda: g.on(f"A.{topic}") == {*copies, held})
    for original in (literal, group, shared):
        sync(**now)
        g.remove(original)
    sync(**now)
    assert g.on(f"A.{topic}") == {*copies, held}  # of the first one, ALL is an original too
    assert not [m for m in caplog.messages if "removed the ACL" in m and f"A.{topic}" in m]
    g.remove(everything, prefix)
    sync(**now)
    wait_for("now they are removed", lambda: g.on(f"A.{topic}") == {held})


def test_prefixes_and_groups_on_demand(guarded: Guarded) -> None:
    g, topic = guarded, guarded.topic
    group = f"{topic}-readers"
    originals = [
        g.acl(topic, ALL, pattern=Pattern.PREFIXED),
        g.acl("unrelated", READ, pattern=Pattern.PREFIXED),
        g.acl(group, READ, resource=Resource.GROUP),
    ]
    g.add(*originals)
    keys = {"sync_topic_acls_prefixed_enabled": "true", "sync_group_acls_enabled": "true"}
    with Watching(g.config(**keys), g.offsets):
        wanted = {g.acl(f"A.{topic}", READ, pattern=Pattern.PREFIXED)}
        wait_for("the prefix is copied", lambda: g.on(f"A.{topic}") == wanted)
    assert not g.on("A.unrelated")
    g.remove(*originals)


@pytest.mark.slow
def test_a_dry_run_creates_and_removes_nothing(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    g, remote = guarded, f"A.{guarded.topic}"
    kept, gone, new = (g.acl(g.topic, READ, who=who) for who in ("kept", "gone", "new"))
    g.add(kept, gone)
    with Watching(g.config(sync_topic_acls_delete_enabled="true"), g.offsets):
        wait_for("the ACLs are copied", lambda: len(g.on(remote)) == 2)
        wait_for("they are written down", lambda: g.entered() == 2)
    g.remove(gone)
    g.add(new)
    before = g.on(remote)
    keys = {"sync_topic_acls_delete_enabled": "true", "sync_topic_acls_dry_run": "true"}

    def said(word: str) -> list[str]:
        return [m for m in caplog.messages if f"would be {word}" in m and remote in m]

    with caplog.at_level(logging.INFO), Watching(g.config(**keys), g.offsets):
        wait_for("both are told", lambda: said("created") and said("removed"))
        later = g.acl(g.topic, READ, who="later")
        g.add(later)
        wait_for("what changed is told", lambda: len(said("created")) == 2)
    assert (len(said("created")), len(said("removed"))) == (2, 1)
    assert g.on(remote) == before


@pytest.mark.slow
def test_without_an_authorizer_there_is_one_hint(
    cluster_pair: ClusterPair, unique: Unique, caplog: pytest.LogCaptureFixture
) -> None:
    """C-047."""
    source, target = cluster_pair.source.bootstrap, cluster_pair.target.bootstrap
    topic = unique("t")
    create_topic(source, topic)
    config = connector_config(source, target, topic, sync_topic_acls_enabled="true")

    def hints(level: int) -> int:
        found = [r for r in caplog.records if "ACLs are not copied" in r.getMessage()]
        return len([r for r in found if r.levelno == level])

    with caplog.at_level(logging.DEBUG), Watching(config, unique("offsets")):
        wait_for("it is told again, quietly", lambda: hints(logging.DEBUG) >= 1)
    assert hints(logging.INFO) == 1
    (said,) = [
        r.getMessage()
        for r in caplog.records
        if r.levelno == logging.INFO and "ACLs are not" in r.getMessage()
    ]
    assert "cluster A" in said
    assert "no authorizer" in said
