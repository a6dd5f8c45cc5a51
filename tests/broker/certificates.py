"""Certificates and stores for tests of TLS: names of who they are for come in, files and Java properties go out.

    authority = Authority(tmp_path)                            # a CA, self-signed
    broker = authority.issue("broker")                         # for localhost and 127.0.0.1
    alice = authority.issue("alice")                           # a client: principal User:CN=alice
    alice.store("JKS").as_keystore()                           # {"ssl.keystore.type": "JKS", "ssl.keystore.location": …}
    authority.store("PKCS12").as_truststore()                  # {"ssl.truststore.type": "PKCS12", …}
    authority.keystore("broker", "localhost")                  # issue and store as PEM, in one: the properties
    authority.truststore()                                     # the properties of a PEM truststore
    authority.listener("CLIENT", broker, client_auth="required")   # what a broker's listener needs

JKS and PKCS12 stores are written by the JDK's own `keytool`, on first use; a store is made once a kind. PEM files hold what
Kafka reads: the key, then the chain.
"""

from __future__ import annotations

import datetime
import ipaddress
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID

from sparkmirror.tools.jvm import java

Kind = Literal["JKS", "PKCS12", "PEM"]
Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
KINDS: tuple[Kind, ...] = ("JKS", "PKCS12", "PEM")
LOCAL = ("localhost", "127.0.0.1")
PASSWORD = "store-secret"  # noqa: S105 - of stores that live for one test
KEY_PASSWORD = "key-secret"  # noqa: S105
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Store:
    """A file with certificates, and perhaps a key; PEM files have no password but that of the key."""

    kind: Kind
    path: Path
    password: str | None
    key_password: str | None = None

    def as_keystore(self) -> dict[str, str]:
        """The `ssl.keystore.*` properties that name it."""
        return self._properties("keystore") | _given("ssl.key.password", self.key_password)

    def as_truststore(self) -> dict[str, str]:
        """The `ssl.truststore.*` properties that name it."""
        return self._properties("truststore")

    def _properties(self, what: str) -> dict[str, str]:
        return {
            f"ssl.{what}.type": self.kind,
            f"ssl.{what}.location": str(self.path),
        } | _given(f"ssl.{what}.password", self.password)


@dataclass(frozen=True, slots=True)
class Identity:
    """A private key with its certificate and whoever signed that, except the root."""

    name: str
    key: Key
    certificate: x509.Certificate
    issuers: tuple[x509.Certificate, ...]
    directory: Path
    _stores: dict[tuple[str, bool], Store] = field(default_factory=dict)

    @property
    def chain(self) -> tuple[x509.Certificate, ...]:
        return (self.certificate, *self.issuers)

    def chain_pem(self) -> str:
        return "".join(each.public_bytes(Encoding.PEM).decode() for each in self.chain)

    def key_pem(self, password: str | None = None) -> str:
        """PKCS#8, encrypted if there is a password."""
        locked = BestAvailableEncryption(password.encode()) if password else NoEncryption()
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked).decode()

    def store(self, kind: Kind, *, locked_key: bool = False) -> Store:
        """A store with the key and its chain; with `locked_key`, a JKS or PEM key has a password of its own."""
        known = self._stores.get((kind, locked_key))
        if known is None:
            known = self._stores[kind, locked_key] = self._make(kind, locked_key)
        return known

    def _make(self, kind: Kind, locked_key: bool) -> Store:
        stem = f"{self.name}{'-locked' if locked_key else ''}"
        own = KEY_PASSWORD if locked_key else None
        if kind == "PEM":
            path = self.directory / f"{stem}.pem"
            path.write_text(self.key_pem(own) + self.chain_pem(), encoding="ascii")
            return Store(kind, path, None, own)
        path = self.directory / f"{stem}.{kind.lower()}"
        self.write_store(path, kind, own)
        return Store(kind, path, PASSWORD, own)

    def write_store(self, path: Path, kind: Kind, key_password: str | None = None) -> None:
        """Let keytool write a JKS or PKCS12 store over whatever is at `path`."""
        passed = self.directory / f"{path.name}.passed"
        locked = BestAvailableEncryption(PASSWORD.encode())
        passed.write_bytes(
            pkcs12.serialize_key_and_certificates(
                self.name.encode(), self.key, self.certificate, self.issuers, locked
            )
        )
        path.unlink(missing_ok=True)
        keytool(
            "-importkeystore",
            *("-srckeystore", str(passed), "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD),
            *("-destkeystore", str(path), "-deststoretype", kind, "-deststorepass", PASSWORD),
            *("-srcalias", self.name),
            *(("-destkeypass", key_password) if key_password and kind == "JKS" else ()),
        )
        passed.unlink()


class Authority:
    """A CA with a key of its own in a directory; an intermediate one if another has signed it."""

    def __init__(
        self,
        directory: Path,
        name: str = "test-ca",
        signed_by: Authority | None = None,
        valid: tuple[int, int] = (-1, 30),
    ) -> None:
        self.name = name
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._parent = signed_by
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._stores: dict[str, Store] = {}
        self.certificate: x509.Certificate = _certificate(
            name,
            self._key,
            signed_by.certificate.subject if signed_by else _subject(name),
            signed_by._key if signed_by else self._key,
            valid=valid,
            is_authority=True,
        )

    @property
    def issuers(self) -> tuple[x509.Certificate, ...]:
        """What has to go along with its certificates: itself and those above, unless it is a root."""
        return () if self._parent is None else (self.certificate, *self._parent.issuers)

    def intermediate(self, name: str) -> Authority:
        return Authority(self.directory, name, signed_by=self)

    def issue(
        self,
        name: str,
        hosts: Sequence[str] = LOCAL,
        *,
        valid: tuple[int, int] = (-1, 30),
        key: Literal["rsa", "ec"] = "rsa",
    ) -> Identity:
        """A certificate CN=`name` for hosts and addresses, valid from and to these days from today."""
        made = (
            rsa.generate_private_key(65537, 2048)
            if key == "rsa"
            else ec.generate_private_key(ec.SECP256R1())
        )
        certificate = _certificate(
            name, made, self.certificate.subject, self._key, hosts=hosts, valid=valid
        )
        return Identity(name, made, certificate, self.issuers, self.directory)

    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def keystore(self, name: str, *hosts: str, kind: Kind = "PEM") -> dict[str, str]:
        """The properties of a keystore with a new certificate for these hosts (none named: this one)."""
        return self.issue(name, hosts or LOCAL).store(kind).as_keystore()

    def truststore(self, kind: Kind = "PEM") -> dict[str, str]:
        """The properties of a truststore with this CA."""
        return self.store(kind).as_truststore()

    def store(self, kind: Kind) -> Store:
        """A store that trusts this CA."""
        known = self._stores.get(kind)
        if known is None:
            path = self.directory / f"{self.name}-trust.{kind.lower()}"
            password = None if kind == "PEM" else PASSWORD
            self.write_trust(path, kind)
            known = self._stores[kind] = Store(kind, path, password)
        return known

    def write_trust(self, path: Path, kind: Kind) -> None:
        """Write a truststore over whatever is at `path`: PEM, or JKS and PKCS12 by keytool."""
        if kind == "PEM":
            path.write_text(self.pem(), encoding="ascii")
            return
        passed = self.directory / f"{path.name}.passed"
        passed.write_text(self.pem(), encoding="ascii")
        path.unlink(missing_ok=True)
        keytool(
            *("-importcert", "-noprompt", "-alias", self.name, "-file", str(passed)),
            *("-keystore", str(path), "-storetype", kind, "-storepass", PASSWORD),
        )
        passed.unlink()

    def listener(
        self,
        name: str,
        broker: Identity,
        client_auth: Literal["none", "requested", "required"] = "none",
        kind: Kind = "PEM",
    ) -> dict[str, str]:
        """Properties of a broker for its TLS listener `name`: its certificate, whom it trusts, what it asks of clients."""
        stores = broker.store(kind).as_keystore() | self.truststore(kind)
        prefix = f"listener.name.{name.lower()}."
        return {prefix + key: value for key, value in stores.items()} | {
            f"{prefix}ssl.client.auth": client_auth
        }


def _given(key: str, value: str | None) -> dict[str, str]:
    return {} if value is None else {key: value}


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _certificate(
    name: str,
    key: Key,
    issuer: x509.Name,
    issuer_key: Key,
    *,
    hosts: Sequence[str] = (),
    valid: tuple[int, int] = (-1, 30),
    is_authority: bool = False,
) -> x509.Certificate:
    today = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    public = key.public_key()
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(name))
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(today + valid[0] * _DAY)
        .not_valid_after(today + valid[1] * _DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()),
            critical=False,
        )
    )
    if hosts:
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def keytool(*arguments: str) -> None:
    """The keytool beside the Java that runs the brokers."""
    beside = Path(java()).with_name("keytool")
    program = str(beside) if beside.exists() else "keytool"
    quick = ("-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1", "-J-Xshare:auto")
    done = subprocess.run(
        [program, *quick, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
