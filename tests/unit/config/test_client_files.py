"""Files that name clusters: client properties, or an mm2.properties."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkmirror.config.client_files import ClientFile
from sparkmirror.errors import ConfigError

FLOWS = {
    "clusters": "A, B, C",
    "A.bootstrap.servers": "a:1",
    "B.bootstrap.servers": "b:1",
    "C.bootstrap.servers": "c:1",
    "A->B.enabled": "true",
}
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


def test_client_properties_are_taken_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "client.properties"
    path.write_text("bootstrap.servers = b:1\nsasl.jaas.config = ${env:JAAS}\n")
    monkeypatch.setenv("JAAS", "a secret")
    file = ClientFile.read(path)
    assert file.aliases == ()
    assert file.target(None) is None
    assert file.address(None) == "b:1"
    assert file.client(None) == {"bootstrap.servers": "b:1", "sasl.jaas.config": "a secret"}


def test_a_cluster_of_a_file_of_flows() -> None:
    more = {
        "replication.policy.separator": "_",
        "B.security.protocol": "PLAINTEXT",
        "B.admin.ssl.key": "x",
        "ssl.protocol": "TLSv1.3",
    }
    file = ClientFile(FLOWS | more, "mm2.properties")
    assert file.aliases == ("A", "B", "C")
    assert file.address("C") == "c:1"
    client = file.client("B")
    assert client["bootstrap.servers"] == "b:1"
    assert client["replication.policy.separator"] == "_"
    assert client["security.protocol"] == "PLAINTEXT"
    assert client["admin.ssl.key"] == "x"
    assert client["ssl.protocol"] == "TLSv1.3"


def test_the_policy_of_the_flow_counts_most() -> None:
    own = {"replication.policy.class": "x.Y", "A->B.replication.policy.class": IDENTITY}
    file = ClientFile(FLOWS | own, "mm2.properties")
    assert file.client("B")["replication.policy.class"] == IDENTITY
    assert file.client("B", "A")["replication.policy.class"] == IDENTITY
    assert file.client("B", "C")["replication.policy.class"] == "x.Y"
    assert file.client("C")["replication.policy.class"] == "x.Y"


def test_secrets_of_other_clusters_need_not_be_there() -> None:
    secret = {"A.sasl.jaas.config": "${env:SURELY_NOT_SET}"}
    file = ClientFile(FLOWS | secret, "mm2.properties")
    assert file.client("B")["bootstrap.servers"] == "b:1"
    with pytest.raises(ConfigError, match="SURELY_NOT_SET"):
        file.client("A")


def test_the_only_target_is_meant_unless_another_is_named() -> None:
    file = ClientFile(FLOWS, "mm2.properties")
    assert file.target(None) == "B"
    assert file.target("C") == "C"
    both = ClientFile(FLOWS | {"B->C.enabled": "true"}, "mm2.properties")
    with pytest.raises(ConfigError, match=r"go to B, C\. Say with --cluster"):
        both.target(None)
    with pytest.raises(ConfigError, match=r"D is not among the clusters .*\(A, B, C\)"):
        both.target("D")


def test_what_is_neither_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"x\.txt has neither bootstrap\.servers nor clusters"):
        ClientFile({"a": "b"}, "x.txt")
    with pytest.raises(ConfigError, match="B cannot be picked"):
        ClientFile({"bootstrap.servers": "b:1"}, "client.properties").target("B")


def test_which_flows_copy_is_known_of_the_clusters_of_the_file_only() -> None:
    secret = {"A.sasl.jaas.config": "${env:SURELY_NOT_SET}"}
    file = ClientFile(FLOWS | secret, "mm2.properties")
    assert file.may_copy("A", "B")
    assert not file.may_copy("B", "A")
    assert not file.may_copy("A", "C")
    assert file.may_copy("X", "B")
    assert file.may_copy("A", None)
    assert file.target(None) == "B"
    assert ClientFile({"bootstrap.servers": "b:1"}, "client.properties").may_copy("B", "A")
