"""TLS from Java properties: versions, suites, switches, and contexts that follow their files."""

from __future__ import annotations

import logging
import os
import ssl
from pathlib import Path

import pytest
from certificates import Authority

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.ciphers import openssl_name, suites
from sparkmirror.kafka.access.security import Security, security_of
from sparkmirror.kafka.access.tls import client_context, client_tls

V12, V13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
GCM = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("stores"))


# -- versions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        ({}, V12, V13),
        ({"ssl.enabled.protocols": "TLSv1.2, TLSv1.3"}, V12, V13),
        ({"ssl.enabled.protocols": "TLSv1.2"}, V12, V12),
        ({"ssl.enabled.protocols": "TLSv1.3"}, V13, V13),
        ({"ssl.protocol": "TLS"}, V12, V13),
        ({"ssl.protocol": "TLSv1.2"}, V12, V12),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.2"}, V12, V12),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, V13, V13),
        ({"ssl.cipher.suites": GCM}, V12, V12),
        ({"ssl.cipher.suites": f"TLS_AES_256_GCM_SHA384,{GCM}"}, V12, V13),
    ],
)
def test_versions(given: dict[str, str], least: ssl.TLSVersion, most: ssl.TLSVersion) -> None:
    context = client_context(given)
    assert (context.minimum_version, context.maximum_version) == (least, most)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"ssl.enabled.protocols": "TLSv1.4"}, "ssl.enabled.protocols: TLSv1.4"),
        ({"ssl.enabled.protocols": "TLSv1,TLSv1.1"}, "leave no version"),
        ({"ssl.protocol": "QUIC"}, "ssl.protocol=QUIC"),
        ({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"}, "leave no version"),
        ({"ssl.cipher.suites": "TLS_NULL_WITH_NULL_NULL"}, "ssl.cipher.suites: TLS_NULL_WITH"),
        ({"ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384"}, "ssl.cipher.suites: ECDHE"),
        ({"ssl.cipher.suites": GCM, "ssl.enabled.protocols": "TLSv1.3"}, "ssl.cipher.suites"),
        ({"ssl.endpoint.identification.algorithm": "ftp"}, "identification.algorithm=ftp"),
        ({"ssl.engine.factory.class": "com.example.Engine"}, "com.example.Engine"),
    ],
)
def test_settings_that_cannot_be_followed(given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        client_context(given)


def test_settings_of_a_jvm_are_told_to_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    harmless = {
        "ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
        "ssl.keymanager.algorithm": "SunX509",
        "ssl.trustmanager.algorithm": "PKIX",
    }
    with caplog.at_level(logging.WARNING):
        client_context(harmless)
    assert caplog.text == ""
    with caplog.at_level(logging.WARNING):
        client_context({"ssl.provider": "BCFIPS", "ssl.keymanager.algorithm": "odd"})
    assert "ssl.provider=BCFIPS has no effect" in caplog.text
    assert "ssl.keymanager.algorithm=odd has no effect" in caplog.text


# -- suites ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("java", "number"),
    [
        ("TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", 0xC02C),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", 0xC02B),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", 0xCCA9),
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", 0xC030),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xCCA8),
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", 0xC02F),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", 0x009F),
        ("TLS_DHE_RSA_WITH_CHACHA20_POLY1305_SHA256", 0xCCAA),
        ("TLS_DHE_DSS_WITH_AES_256_GCM_SHA384", 0x00A3),
        ("TLS_DHE_RSA_WITH_AES_128_GCM_SHA256", 0x009E),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", 0xC024),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384", 0xC028),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", 0xC027),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", 0x006B),
        ("TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA", 0xC014),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA", 0x0033),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", 0x009D),
        ("TLS_RSA_WITH_AES_256_CBC_SHA256", 0x003D),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", 0x002F),
    ],
)
def test_names_of_suites_mean_the_numbers_that_the_iana_gave_them(java: str, number: int) -> None:
    name = openssl_name(java)
    assert name is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers(f"{name}:@SECLEVEL=0")
    found = {each["name"]: each["id"] & 0xFFFF for each in context.get_ciphers()}
    assert found[name] == number


def test_only_listed_suites_are_offered() -> None:
    context = client_context({"ssl.cipher.suites": f"{GCM},TLS_EMPTY_RENEGOTIATION_INFO_SCSV"})
    older = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert older == ["ECDHE-RSA-AES256-GCM-SHA384"]
    assert suites(["TLS_AES_128_GCM_SHA256"]).tls13 == ("TLS_AES_128_GCM_SHA256",)


# -- switches -------------------------------------------------------------------------------------


def test_the_host_is_checked_unless_switched_off() -> None:
    key = "ssl.endpoint.identification.algorithm"
    assert client_context({}).check_hostname
    assert client_context({key: "HTTPS"}).check_hostname
    unchecked = client_context({key: ""})
    assert not unchecked.check_hostname
    assert unchecked.verify_mode is ssl.CERT_REQUIRED


def test_without_a_truststore_the_system_is_trusted(authority: Authority) -> None:
    own = client_context(authority.truststore("PEM"))
    assert own.cert_store_stats()["x509"] == 1
    assert client_context({}).cert_store_stats() == ssl.create_default_context().cert_store_stats()


def test_an_expired_certificate_in_a_truststore_is_only_a_warning(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = Authority(tmp_path, "old-ca", valid=(-30, -1))
    both = authority.pem() + old.pem()
    with caplog.at_level(logging.WARNING):
        context = client_context(
            {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": both}
        )
    assert context.cert_store_stats()["x509"] == 2
    assert caplog.text.count("has expired on") == 1
    assert "ssl.truststore.certificates (old-ca) has expired on" in caplog.text


def test_a_key_leaves_no_file(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    client_context(authority.keystore("alice"))
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
    assert list(tmp_path.iterdir()) == []


# -- contexts follow their files ------------------------------------------------------------------


def following(directory: Path, authority: Authority) -> tuple[Path, Security]:
    path = directory / "trust.pem"
    path.write_text(authority.pem(), encoding="ascii")
    given = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}
    return path, security_of("A", given | {"ssl.truststore.location": str(path)})


def trusted(security: Security) -> list[bytes]:
    return client_tls("A", security).context.get_ca_certs(binary_form=True)


def test_a_changed_file_makes_a_new_context(authority: Authority, tmp_path: Path) -> None:
    path, security = following(tmp_path, authority)
    first = client_tls("A", security)
    assert client_tls("B", security) is first  # the same properties, whoever asks
    renewed = Authority(tmp_path, "renewed")
    other = tmp_path / "other.pem"
    renewed.write_trust(other, "PEM")
    before = trusted(security)
    other.rename(path)
    assert trusted(security) != before
    assert client_tls("A", security) is client_tls("A", security)


def test_a_file_that_cannot_be_read_right_now(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, security = following(tmp_path, authority)
    first = client_tls("A", security)
    whole = path.read_text()
    with caplog.at_level(logging.WARNING):
        for part in (whole[:100], whole[:-10], ""):
            path.write_text(part)
            assert client_tls("A", security) is first
        path.unlink()
        assert client_tls("A", security) is first
    assert caplog.text.count("New connections use what was read before.") == 1
    path.write_text(Authority(tmp_path, "renewed").pem())
    assert client_tls("A", security) is not first
    with caplog.at_level(logging.WARNING):
        path.write_text("odd")
        client_tls("A", security)
    assert caplog.text.count("New connections use what was read before.") == 2


def test_errors_name_the_cluster(tmp_path: Path) -> None:
    security = security_of(
        "A", {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "none.jks")}
    )
    with pytest.raises(ConfigError, match=r"Cluster A: ssl\.truststore\.location: .*none\.jks"):
        client_tls("A", security)


def test_nothing_is_negotiated_again() -> None:
    context = client_context({})
    assert context.options & ssl.OP_NO_RENEGOTIATION
