"""Missing ACLs: by what brokers say, and in messages."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from sparkmirror.errors import BrokerError
from sparkmirror.kafka import messages
from sparkmirror.kafka.access.security import Security
from sparkmirror.kafka.denials import Operation, needs, principal_of
from sparkmirror.kafka.dry_run import Creation
from sparkmirror.kafka.rights import TopicRights, operations
from sparkmirror.preflight.access_rules import access_findings
from sparkmirror.preflight.facts import SideRights
from sparkmirror.preflight.findings import Finding, Level
from sparkmirror.preflight.privileges import Names, Parts, Privilege, merged, needed

_JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username={} password=p;"


def _security(user: str = '"mirror"', mechanism: str = "PLAIN") -> Security:
    properties = (("sasl.jaas.config", _JAAS.format(user)), ("sasl.mechanism", mechanism))
    return Security("SASL_PLAINTEXT", properties)


def _allowed(*rights: Operation) -> TopicRights:
    return TopicRights(True, False, frozenset(rights))


def _judged(privilege: Privilege, seen: SideRights) -> list[Finding]:
    names = {"remote": ["A.x", "A.y"]}
    found = access_findings([privilege], seen, names, "User:m", "cluster B")
    return [one for one in found if one.level > Level.OK]


_WRITE = Privilege("target", "topic", "remote", "Write", "source", "write the records", "remote")
_CREATE = Privilege("target", "topic", "t", "Create", "source", "create it", creates=True)


def test_what_is_missing_is_one_finding_with_all_names() -> None:
    seen = SideRights(None, {"A.x": _allowed("Read"), "A.y": _allowed("Read")})
    (found,) = _judged(_WRITE, seen)
    assert found.level is Level.ERROR
    assert "User:m lacks the ACL Write on topic A.x, A.y on cluster B (write the records)" in str(
        found
    )
    assert "--allow-principal 'User:m' --operation Write --topic A.x" in found.remedy


def test_what_is_allowed_is_not_told() -> None:
    seen = SideRights(None, {"A.x": _allowed("Write"), "A.y": _allowed("Write")})
    assert _judged(_WRITE, seen) == []


def test_what_is_not_there_yet_cannot_be_seen_unless_it_is_hidden() -> None:
    there, hidden = TopicRights(False, False, None), TopicRights(False, True, None)
    (untold,) = _judged(_WRITE, SideRights(None, {"A.x": there, "A.y": there}))
    assert untold.level is Level.NOTE
    (missing,) = _judged(_WRITE, SideRights(None, {"A.x": hidden, "A.y": hidden}))
    assert missing.level is Level.ERROR


@pytest.mark.parametrize(("code", "is_told"), [(29, True), (38, False), (None, False)])
def test_creating_is_tried(code: int | None, is_told: bool) -> None:
    error = None if code is None else BrokerError(code, "X", "x")
    unseen = TopicRights(False, False, None)
    seen = SideRights(frozenset(), {"t": unseen}, {}, {"t": Creation(error, 1, None)})
    assert bool(_judged(_CREATE, seen)) == is_told


def test_nothing_is_needed_to_create_what_is_there() -> None:
    assert _judged(_CREATE, SideRights(frozenset(), {"t": _allowed("Read")})) == []


def test_syncs_only_lag_behind() -> None:
    configs = Privilege(
        "target", "cluster", "", "Alter", "source", "acls", when="sync.topic.acls.enabled"
    )
    (found,) = _judged(configs, SideRights(frozenset()))
    assert found.level is Level.WARNING
    assert "lacks the ACL Alter on the cluster" in found.message


def test_a_flow_that_there_is_not_needs_nothing() -> None:
    back = Privilege("source", "topic", "m", "Read", "checkpoint", "x", when="there is a flow back")
    assert _judged(back, SideRights(None, {"m": TopicRights(False, False, None)})) == []


def test_groups() -> None:
    group = Privilege("target", "group", "g", "Read", "worker", "share the work")
    (found,) = _judged(group, SideRights(None, {}, {"g": frozenset({"Describe"})}))
    assert "lacks the ACL Read on group g" in found.message
    assert _judged(group, SideRights(None, {}, {"g": frozenset({"Read"})})) == []


def test_codes_of_operations() -> None:
    assert sorted(operations({3, 8, 31}) or ()) == ["Describe", "Read"]
    assert operations(None) is None


def test_privileges_are_each_needed_once() -> None:
    names = Names(
        source_alias="A",
        target_alias="B",
        topics="t",
        remote="A.t",
        groups="g",
        offset_syncs="s",
        checkpoints="c",
        opposite_checkpoints="o",
        heartbeats="h",
        worker_group="w",
        worker_topics=("x",),
    )
    found = merged(needed(names, Parts(group_offsets=True)))
    keys = [(one.side, one.resource, one.name, one.operation) for one in found]
    assert len(keys) == len(set(keys))
    assert ("source", "topic", "t", "Describe") not in keys, "Read includes it"
    assert ("source", "topic", "t", "Read") in keys
    alone = merged(needed(names, Parts(source=False, heartbeat=False, worker=False)))
    assert ("source", "topic", "t", "Describe") in [
        (one.side, one.resource, one.name, one.operation) for one in alone
    ]
    at_target = needed(names, Parts(syncs_at="target", topic_acls=False))
    assert {one.side for one in at_target if one.name == "s"} == {"target"}
    assert not [one for one in at_target if one.resource == "cluster"]


# -- messages -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "resource", "said"),
    [
        (29, "topic", "User:mirror lacks the ACL Write on topic x."),
        (31, "topic", "User:mirror lacks the ACL Write on the cluster."),
        (30, "group", "User:mirror lacks the ACL Write on group x."),
        (54, "topic", "no authorizer"),
    ],
)
def test_denials_name_operation_resource_and_principal(code: int, resource: str, said: str) -> None:
    access = needs("Write", "group" if resource == "group" else "topic", "x", _security())
    error = messages.broker_error(code, "Doing it", remedy="else", access=access)
    assert said in str(error)
    assert error.remedy != "else"


def test_other_errors_keep_their_remedy() -> None:
    access = needs("Write", "topic", "x", _security())
    assert messages.broker_error(3, "Doing it", remedy="else", access=access).remedy == "else"


@pytest.mark.parametrize(
    ("security", "principal"),
    [
        (Security(), "User:ANONYMOUS"),
        (_security(), "User:mirror"),
        (_security('"a \\"b\\""'), 'User:a "b"'),
        (_security("bare"), "User:bare"),
        (_security(mechanism="OAUTHBEARER"), ""),
        (Security("SSL"), "User:ANONYMOUS"),
        (Security("SSL", (("ssl.keystore.location", "/nowhere.jks"),)), ""),
        (Security("SASL_SSL", (("sasl.mechanism", "PLAIN"),)), ""),
    ],
)
def test_principals(security: Security, principal: str) -> None:
    assert principal_of(security) == principal
    assert "password" not in str(needs("Read", "topic", "t", security))


def test_the_principal_of_a_certificate() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, "Shop"),
            x509.NameAttribute(x509.NameOID.COMMON_NAME, "mirror"),
        ]
    )
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    form = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate.public_bytes(Encoding.PEM).decode(),
        "ssl.keystore.key": key.private_bytes(*form).decode(),
    }
    security = Security("SSL", tuple(properties.items()))
    assert principal_of(security) == "User:CN=mirror,O=Shop"
