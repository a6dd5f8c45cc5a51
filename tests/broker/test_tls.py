"""TLS against a real broker: every kind of store, what goes wrong with its sentence, renewal, and a copy over it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from certificates import KINDS, Authority, Identity, Kind
from copied import Copied, Unique, numbered
from kafka_tools import QUICK_JVM, create_topic, end_offsets, produce, topics, wait_for
from running import Mirror, assert_same, properties
from secured import jaas

from sparkmirror.errors import AccessFailed, ConnectionFailed, KafkaError
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.connection import Connection
from sparkmirror.kafka.settings import client_settings
from sparkmirror.tools.clusters import KafkaCluster, free_port

SUITE = "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
LISTENERS = ("OPEN", "MUTUAL", "EXPIRED", "ELSEWHERE", "STRANGER", "OLD", "NEW")


@dataclass(frozen=True, slots=True)
class Tls:
    """A broker with a listener for each thing that can be so or otherwise."""

    cluster: KafkaCluster
    authority: Authority
    stranger: Authority

    def client(
        self, listener: str = "OPEN", stores: Mapping[str, str] | None = None, **more: str
    ) -> dict[str, str]:
        return {
            "bootstrap.servers": self.cluster.bootstrap_of(listener),
            "security.protocol": "SSL",
            **(self.authority.truststore("PEM") if stores is None else stores),
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def open(self, properties: Mapping[str, str]) -> Connection:
        """A connection to the first address; closed by the caller."""
        settings = client_settings("A", properties)
        connection = Connection(*settings.bootstrap[0], settings)
        connection.open()
        return connection

    def refused(self, properties: Mapping[str, str]) -> KafkaError:
        """The error with which a connection is not opened."""
        with pytest.raises(KafkaError) as caught:
            self.open(properties).close()
        host = properties["bootstrap.servers"]
        assert f"{host} of cluster A" in caught.value.message
        return caught.value

    def lets_in(self, properties: Mapping[str, str]) -> bool:
        """Whether the cluster tells who its brokers are, on a connection that was just opened."""
        cluster = Cluster(client_settings("A", properties))
        try:
            cluster.refresh([])
            return list(cluster.brokers) == [1]
        finally:
            cluster.close()


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    directory = tmp_path_factory.mktemp("tls")
    authority = Authority(directory / "certificates")
    stranger = Authority(directory / "certificates", "stranger")
    broker = authority.intermediate("middle").issue("broker")
    shown = {
        "EXPIRED": authority.issue("expired", valid=(-30, -1)),
        "ELSEWHERE": authority.issue("elsewhere", ("broker.example.com", "10.1.2.3")),
        "STRANGER": stranger.issue("strange"),
    }
    properties = {
        "listener.name.old.ssl.enabled.protocols": "TLSv1.2",
        "listener.name.old.ssl.cipher.suites": SUITE,
        "listener.name.new.ssl.enabled.protocols": "TLSv1.3",
    }
    properties |= authority.listener("LOCKED", broker)
    properties["sasl.enabled.mechanisms"] = "PLAIN"
    for name in ("login", "locked"):
        properties[f"listener.name.{name}.plain.sasl.jaas.config"] = jaas("PLAIN", user_alice="x")
    for name in LISTENERS:
        demand = "required" if name == "MUTUAL" else "none"
        properties |= authority.listener(name, shown.get(name, broker), demand)  # type: ignore[arg-type]
    listeners = dict.fromkeys(LISTENERS, "SSL") | {"LOGIN": "SASL_PLAINTEXT", "LOCKED": "SASL_SSL"}
    with KafkaCluster(
        "tls", 1, directory, properties, jvm=QUICK_JVM, listeners=listeners
    ) as cluster:
        yield Tls(cluster, authority, stranger)


@pytest.fixture(scope="module")
def alice(tls: Tls) -> Identity:
    """A client whom the broker trusts."""
    return tls.authority.issue("alice")


# -- stores ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_truststores(tls: Tls, kind: Kind) -> None:
    assert tls.lets_in(tls.client(stores=tls.authority.truststore(kind)))


def test_a_truststore_in_the_properties(tls: Tls) -> None:
    on_one_line = tls.authority.pem().replace("\n", " ")
    stores = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": on_one_line}
    assert tls.lets_in(tls.client(stores=stores))


@pytest.mark.parametrize("kind", KINDS)
def test_mutual_tls(tls: Tls, alice: Identity, kind: Kind) -> None:
    stores = tls.authority.truststore(kind) | alice.store(kind).as_keystore()
    assert tls.lets_in(tls.client("MUTUAL", stores))


@pytest.mark.slow
def test_mutual_tls_with_keys_that_have_a_password(tls: Tls, alice: Identity) -> None:
    trust = tls.authority.truststore("PEM")
    for kind in ("JKS", "PEM"):
        keys = alice.store(kind, locked_key=True).as_keystore()
        assert tls.lets_in(tls.client("MUTUAL", trust | keys))


def test_a_keystore_in_the_properties(tls: Tls, alice: Identity) -> None:
    stores = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": alice.key_pem("secret").replace("\n", " "),
        "ssl.keystore.certificate.chain": alice.chain_pem().replace("\n", " "),
        "ssl.key.password": "secret",
    }
    assert tls.lets_in(tls.client("MUTUAL", tls.authority.truststore("PEM") | stores))


# -- what goes wrong ------------------------------------------------------------------------------


def says(error: KafkaError, *parts: str) -> None:
    assert isinstance(error, AccessFailed), error
    assert not error.retriable
    assert error.remedy
    for part in parts:
        assert part in str(error), f"{part!r} is not in: {error}"


def test_a_ca_that_is_not_in_the_truststore(tls: Tls) -> None:
    location = tls.authority.store("PEM").path
    says(
        tls.refused(tls.client("STRANGER")),
        "(CN=strange, issued by CN=stranger)",
        f"is not signed by a CA in ssl.truststore.location={location}",
    )
    inline = {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": tls.authority.pem()}
    says(tls.refused(tls.client("STRANGER", inline)), "a CA in ssl.truststore.certificates")
    says(
        tls.refused(tls.client("OPEN", {})),
        "CA which this system trusts",
        "ssl.truststore.location is not set",
    )


def test_an_expired_certificate(tls: Tls) -> None:
    ended = tls.authority.certificate.not_valid_before_utc  # a day ago, like the broker's
    says(
        tls.refused(tls.client("EXPIRED")),
        "CN=expired",
        f"expired on {ended:%Y-%m-%d}",
        "renewed",
    )


def test_a_certificate_for_another_host(tls: Tls) -> None:
    says(
        tls.refused(tls.client("ELSEWHERE")),
        "for broker.example.com, 10.1.2.3, not for 127.0.0.1",
        "ssl.endpoint.identification.algorithm",
    )
    assert tls.lets_in(tls.client("ELSEWHERE", ssl_endpoint_identification_algorithm=""))


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_no_certificate_of_ours_where_one_is_demanded(tls: Tls, version: str) -> None:
    says(
        tls.refused(tls.client("MUTUAL", ssl_enabled_protocols=version)),
        "demands a client certificate",
        "ssl.keystore.location",
    )


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_certificate_of_ours_that_is_refused(tls: Tls, version: str) -> None:
    for mallory in (tls.stranger.issue("mallory"), tls.authority.issue("late", valid=(-9, -1))):
        keys = mallory.store("PEM").as_keystore()
        given = tls.client("MUTUAL", tls.authority.truststore("PEM") | keys)
        says(
            tls.refused(given | {"ssl.enabled.protocols": version}),
            f"refused our certificate (CN={mallory.name}, issued by CN=",
            f"from {keys['ssl.keystore.location']}",
        )


def test_tls_where_there_is_none(tls: Tls) -> None:
    given = tls.client() | {"bootstrap.servers": tls.cluster.bootstrap}
    says(
        tls.refused(given),
        "speaks no TLS on this listener",
        "security.protocol=SSL",
        "set security.protocol=PLAINTEXT",
    )


def test_no_tls_where_there_is_some(tls: Tls) -> None:
    for listener in ("OPEN", "MUTUAL"):
        given = {"bootstrap.servers": tls.cluster.bootstrap_of(listener)}
        says(
            tls.refused(given),
            "speaks TLS on this listener",
            "security.protocol=PLAINTEXT",
            "Set security.protocol=SSL",
        )


def test_no_login_where_one_is_wanted(tls: Tls) -> None:
    for listener, protocol in (("LOGIN", "PLAINTEXT"), ("LOCKED", "SSL")):
        cluster = Cluster(
            client_settings("A", tls.client(listener) | {"security.protocol": protocol})
        )
        with pytest.raises(AccessFailed) as caught:
            cluster.refresh([])
        says(
            caught.value,
            f"wants a login on this listener, and security.protocol={protocol} has none",
            f"Set security.protocol=SASL_{protocol}, sasl.mechanism to one of PLAIN",
        )
        cluster.close()


def test_versions_that_do_not_meet(tls: Tls) -> None:
    for listener, only in (("OLD", "TLSv1.3"), ("NEW", "TLSv1.2")):
        says(
            tls.refused(tls.client(listener, ssl_enabled_protocols=only)),
            f"no version of TLS in common: ssl.enabled.protocols is {only} here",
        )
        assert tls.lets_in(tls.client(listener))


def test_suites_that_do_not_meet(tls: Tls) -> None:
    assert tls.lets_in(tls.client("OLD", ssl_cipher_suites=SUITE))
    other = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
    says(
        tls.refused(tls.client("OLD", ssl_cipher_suites=other)),
        f"ssl.cipher.suites is {other} here",
    )


def test_what_the_limits_agree_on(tls: Tls) -> None:
    for limits, version, suite in (
        ({"ssl.enabled.protocols": "TLSv1.2"}, "TLSv1.2", ""),
        ({"ssl.enabled.protocols": "TLSv1.3"}, "TLSv1.3", ""),
        ({"ssl.cipher.suites": SUITE}, "TLSv1.2", "ECDHE-RSA-AES128-GCM-SHA256"),
    ):
        connection = tls.open(tls.client() | limits)
        agreed = connection._socket._wrapped.cipher()  # type: ignore[union-attr]
        connection.close()
        assert agreed is not None and agreed[1] == version
        assert suite in ("", agreed[0])


def test_who_refuses_is_told_rather_than_who_is_not_there(tls: Tls) -> None:
    """Of three addresses: one is dead, one refuses, and with a third that lets us in all is well."""
    dead, refusing = f"127.0.0.1:{free_port()}", tls.cluster.bootstrap_of("STRANGER")
    given = tls.client() | {"bootstrap.servers": f"{refusing},{dead}"}
    cluster = Cluster(client_settings("A", given))
    with pytest.raises(AccessFailed, match="is not signed by a CA"):
        cluster.refresh([])
    both = given["bootstrap.servers"] + "," + tls.cluster.bootstrap_of("OPEN")
    assert tls.lets_in(given | {"bootstrap.servers": both})
    with pytest.raises(ConnectionFailed, match="can be reached"):
        Cluster(client_settings("A", given | {"bootstrap.servers": dead})).refresh([])


# -- renewal --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PEM", pytest.param("JKS", marks=pytest.mark.slow)])
def test_renewed_stores_are_taken_up(
    tls: Tls, kind: Kind, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The same settings all the time: refused, let in after both files were written anew, and while they are half written."""
    mine = Authority(tmp_path, "mine")
    trust, keys = tmp_path / "trust", tmp_path / "keys"

    def write(whom: Authority, who: Identity) -> None:
        whom.write_trust(trust, kind)
        if kind == "PEM":
            keys.write_text(who.key_pem() + who.chain_pem())
        else:
            who.write_store(keys, kind)

    write(mine, mine.issue("mallory"))
    stores = mine.truststore(kind) | mine.issue("x").store(kind).as_keystore()
    stores |= {"ssl.truststore.location": str(trust), "ssl.keystore.location": str(keys)}
    given = tls.client("MUTUAL", stores)
    says(tls.refused(given), "is not signed by a CA in")
    tls.authority.write_trust(trust, kind)
    says(tls.refused(given), "refused our certificate")
    write(tls.authority, tls.authority.issue("alice"))
    assert tls.lets_in(given)
    with caplog.at_level(logging.WARNING):
        keys.write_bytes(keys.read_bytes()[:500])
        trust.write_bytes(b"")
        assert tls.lets_in(given)
        assert tls.lets_in(given)
    assert caplog.text.count("New connections use what was read before") == 1
    write(tls.authority, tls.authority.issue("alice"))
    assert tls.lets_in(given)


# -- copying --------------------------------------------------------------------------------------


@pytest.fixture
def copied(tls: Tls, unique: Unique, alice: Identity) -> Iterator[Copied]:
    """A topic and its copy, read over one TLS listener and written over another."""
    found = Copied(tls.cluster, tls.cluster, unique, 2)
    stores = tls.authority.truststore("PEM") | alice.store("PEM").as_keystore()
    found.flow.close()
    found.flow.source = Cluster(client_settings("A", tls.client("OLD")))
    found.flow.target = Cluster(client_settings("B", tls.client("MUTUAL", stores)))
    for cluster in (found.flow.source, found.flow.target):
        cluster.refresh([found.topic, found.remote])
    yield found
    found.close()


def test_a_copy_over_tls(copied: Copied) -> None:
    """Batches of a megabyte, and small ones, both ways through the same loop."""
    rows = [row for partition in (0, 1) for row in numbered(3000, 2000, partition)]
    copied.produce(rows, batch_size=1_000_000, linger_ms=100)
    with copied.copying() as task:
        copied.until(task, 6000)
        for i in range(5):
            copied.produce(numbered(3, first=3000 + 3 * i))
            copied.until(task, 6003 + 3 * i)
    assert copied.arrived() == copied.sent()


@pytest.mark.slow
def test_a_run_over_tls(tls: Tls, unique: Unique, alice: Identity, tmp_path: Path) -> None:
    """The whole program on Spark, with stores as keytool writes them on both sides."""
    topic = unique("orders")
    create_topic(tls.cluster.bootstrap, topic, 2)
    rows = [row for partition in (0, 1) for row in numbered(2000, 1000, partition)]
    produce(tls.cluster.bootstrap, topic, rows)
    stores = tls.authority.truststore("PKCS12") | alice.store("PKCS12").as_keystore()
    sides = {
        "A": tls.client("OPEN", tls.authority.truststore("JKS")),
        "B": tls.client("MUTUAL", stores),
    }
    keys = properties(tls.cluster, tls.cluster, flow_topics=topic, tasks_max="2")
    keys |= {
        f"{side}.{key}": value for side, given in sides.items() for key, value in given.items()
    }
    with Mirror(tmp_path, keys) as mirror:
        wait_for(
            "everything is copied",
            lambda: sum(ends(tls.cluster, f"A.{topic}").values()) == 4000,
        )
        assert mirror.stop() == 0
    assert assert_same(tls.cluster, topic, tls.cluster, f"A.{topic}") == 4000


def ends(cluster: KafkaCluster, topic: str) -> dict[int, int]:
    known = topic in topics(cluster.bootstrap)
    return end_offsets(cluster.bootstrap, topic) if known else {}
