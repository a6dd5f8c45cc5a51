"""GSSAPI at a real broker, with tickets of a real KDC (MIT Kerberos): from a keytab, from a ticket cache, and from nowhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from kafka_tools import wait_for
from secured import SecuredCluster, jaas, secured_cluster

from sparkmirror.errors import AccessFailed
from sparkmirror.kafka.access.sent_files import read_files
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import ClientSettings, client_settings
from sparkmirror.processes import spawn
from sparkmirror.tools.clusters import free_port

pytest.importorskip("gssapi", reason="needs the extra gssapi")
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
_PROGRAMS = {
    name: shutil.which(name, path=_PATH) for name in ("krb5kdc", "kdb5_util", "kadmin.local")
}
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(_PROGRAMS.values()), reason="needs a KDC (Debian: krb5-kdc, krb5-admin-server)"
    ),
]
REALM = "MIRROR.TEST"
PASSWORD = "ticket-secret"  # noqa: S105 - of a user that lives for one test


@dataclass(frozen=True, slots=True)
class Realm:
    """A realm with its KDC; `environment` is what makes programs use it."""

    directory: Path
    environment: dict[str, str]

    def run(self, program: str, *arguments: str, words: str = "") -> None:
        known = _PROGRAMS.get(program) or shutil.which(program) or program
        done = subprocess.run(
            [known, *arguments],
            env={**os.environ, **self.environment},
            input=words,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def keytab(self, principal: str) -> Path:
        """A keytab with a new principal."""
        file = self.directory / f"{principal.replace('/', '_')}.keytab"
        self.run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
        self.run("kadmin.local", "-r", REALM, "ktadd", "-k", str(file), principal)
        return file


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    directory = tmp_path_factory.mktemp("realm")
    port = free_port()
    (directory / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n"
        " dns_canonicalize_hostname = false\n udp_preference_limit = 1\n"
        f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{port}\n }}\n",
        encoding="ascii",
    )
    (directory / "kdc.conf").write_text(
        f"[realms]\n {REALM} = {{\n  database_name = {directory}/principals\n"
        f"  key_stash_file = {directory}/stash\n  kdc_listen = 127.0.0.1:{port}\n"
        f"  kdc_tcp_listen = 127.0.0.1:{port}\n }}\n[logging]\n kdc = FILE:{directory}/kdc.log\n",
        encoding="ascii",
    )
    made = Realm(
        directory,
        {
            "KRB5_CONFIG": str(directory / "krb5.conf"),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
        },
    )
    made.run("kdb5_util", "-r", REALM, "create", "-s", "-P", "master-secret")
    program = _PROGRAMS["krb5kdc"]
    assert program is not None
    kdc = spawn(
        [program, "-n", "-r", REALM],
        log=directory / "out.log",
        env={**os.environ, **made.environment},
    )
    try:
        wait_for("a KDC", lambda: _listens(directory / "kdc.log"))
        yield made
    finally:
        kdc.kill()
        kdc.wait()


def _listens(log: Path) -> bool:
    return log.exists() and "commencing operation" in log.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def kerberised(realm: Realm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    keytab = realm.keytab("kafka/127.0.0.1")
    login = jaas(
        "GSSAPI",
        useKeyTab="true",
        storeKey="true",
        keyTab=str(keytab),
        principal=f"kafka/127.0.0.1@{REALM}",
    )
    with secured_cluster(
        tmp_path_factory.mktemp("kerberised"),
        listeners={"KERBEROS": "SASL_PLAINTEXT", "KERBEROS_SSL": "SASL_SSL"},
        properties={
            "sasl.kerberos.service.name": "kafka",
            **{
                f"listener.name.{name}.{key}": value
                for name in ("kerberos", "kerberos_ssl")
                for key, value in (
                    ("sasl.enabled.mechanisms", "GSSAPI"),
                    ("gssapi.sasl.jaas.config", login),
                )
            },
        },
        jvm=(f"-Djava.security.krb5.conf={realm.environment['KRB5_CONFIG']}",),
    ) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def here(realm: Realm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """This process belongs to the realm, and has no tickets."""
    for name, value in realm.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path}/tickets")


def settings(properties: dict[str, str]) -> ClientSettings:
    return client_settings("x", {**properties, "sasl.kerberos.service.name": "kafka"})


def enter(properties: dict[str, str]) -> None:
    enter_with(settings(properties))


def enter_with(client: ClientSettings) -> None:
    cluster = Cluster(client)
    try:
        cluster.refresh(())
        assert len(cluster.brokers) == 1
    finally:
        cluster.close()


@pytest.mark.parametrize("listener", ["KERBEROS", "KERBEROS_SSL"])
def test_tickets_of_a_keytab(kerberised: SecuredCluster, realm: Realm, listener: str) -> None:
    user = f"mirror-{listener.lower()}"
    keytab = realm.keytab(user)
    options = {"useKeyTab": "true", "keyTab": str(keytab), "principal": f"{user}@{REALM}"}
    enter(kerberised.client(listener, "GSSAPI", **options))
    # The mechanism is GSSAPI when none is named, as in Java.
    properties = kerberised.client(listener, "GSSAPI", **options)
    del properties["sasl.mechanism"]
    enter(properties)


def test_tickets_of_a_cache(kerberised: SecuredCluster, realm: Realm, tmp_path: Path) -> None:
    realm.run("kadmin.local", "-r", REALM, "addprinc", "-pw", PASSWORD, "person")
    properties = kerberised.client("KERBEROS", "GSSAPI", useTicketCache="true")
    with pytest.raises(AccessFailed, match="Kerberos gives no ticket for kafka@127") as raised:
        enter(properties)
    assert "kinit" in raised.value.remedy
    cache = tmp_path / "cache"
    realm.run("kinit", "-c", str(cache), f"person@{REALM}", words=f"{PASSWORD}\n")
    enter(kerberised.client("KERBEROS", "GSSAPI", useTicketCache="true", ticketCache=str(cache)))


@pytest.mark.parametrize("option", ["keyTab", "ticketCache"])
def test_an_executor_without_the_drivers_files(
    kerberised: SecuredCluster, realm: Realm, tmp_path: Path, option: str
) -> None:
    """The contents were sent; the files are gone."""
    user = f"sent-{option.lower()}"
    file = realm.keytab(user)
    if option == "ticketCache":
        cache = tmp_path / "cache"
        realm.run("kinit", "-k", "-t", str(file), "-c", str(cache), f"{user}@{REALM}")
        file.unlink()
        file = cache
    principal = f"{user}@{REALM}"
    is_keytab = str(option == "keyTab")
    properties = kerberised.client(
        "KERBEROS", "GSSAPI", useKeyTab=is_keytab, **{option: str(file)}, principal=principal
    )
    client = settings(properties)
    files = read_files(client)
    file.unlink()
    with pytest.raises(AccessFailed, match="Kerberos gives no ticket"):
        enter_with(client)
    enter_with(replace(client, security=replace(client.security, files=files)))


def test_a_keytab_that_is_not_there_or_of_somebody_else(
    kerberised: SecuredCluster, realm: Realm, tmp_path: Path
) -> None:
    for keytab in (tmp_path / "none", realm.keytab("other")):
        properties = kerberised.client(
            "KERBEROS", "GSSAPI", useKeyTab="true", keyTab=str(keytab), principal=f"who@{REALM}"
        )
        with pytest.raises(AccessFailed, match="Kerberos gives no ticket"):
            enter(properties)
