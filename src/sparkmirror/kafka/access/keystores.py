"""Truststores and keystores: `ssl.*` properties of a Java client in, certificates and a private key out.

JKS and PKCS12 are told apart by what is in the file, as Java does, whichever of the two was declared; PEM is a file or stands
in the properties themselves. What Java refuses (a password for PEM, a key without its chain) is refused here too.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
    pkcs12,
)

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access import jks, pem
from sparkmirror.kafka.access.files import HERE, ClientFiles, NamedFile

log = logging.getLogger(__name__)
_TYPES = ("JKS", "PKCS12", "PEM")
_DER_SEQUENCE = b"\x30"  # what a PKCS12 file begins with


@dataclass(frozen=True, slots=True)
class TrustStore:
    """Whom to trust: certificates as DER."""

    where: str
    certificates: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class KeyStore:
    """Who we are: a private key as PKCS#8 PEM, and its certificates as DER, its own first."""

    where: str
    key: bytes = field(repr=False)
    chain: tuple[bytes, ...]

    def __str__(self) -> str:
        own = x509.load_der_x509_certificate(self.chain[0])
        return (
            f"{own.subject.rfc4514_string()}, issued by {own.issuer.rfc4514_string()}, "
            f"valid until {own.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
        )

    def as_pem(self) -> bytes:
        """Key and chain, as OpenSSL reads them."""
        return self.key + b"".join(_as_pem(each) for each in self.chain)


@dataclass(frozen=True, slots=True)
class _Contents:
    """What a JKS or PKCS12 file holds."""

    trusted: tuple[bytes, ...]
    keys: tuple[tuple[PrivateKeyTypes, tuple[bytes, ...]], ...] = ()


def store_files(given: Mapping[str, str]) -> tuple[NamedFile, ...]:
    """The files that the properties name."""
    keys = ("ssl.truststore.location", "ssl.keystore.location")
    named = ((key, _of(given, key)) for key in keys)
    return tuple(NamedFile(key, location) for key, location in named if location)


def trust_store(given: Mapping[str, str], files: ClientFiles = HERE) -> TrustStore | None:
    """The truststore that the properties name; None if they name none."""
    kind = _type(given, "ssl.truststore.type")
    inline, location, password = (
        _of(given, f"ssl.truststore.{name}") for name in ("certificates", "location", "password")
    )
    if inline or (location and kind == "PEM"):
        _refuse_beside_pem(given, "truststore", inline, "certificates", kind)
        where = location or "ssl.truststore.certificates"
        found = pem.certificates(inline or _text(files, location or "", where), where)
    elif location:
        contents = _open(files, location, password, "ssl.truststore", None)
        # Of keys that lie in a truststore Java trusts the certificates.
        found = contents.trusted + tuple(chain[0] for _, chain in contents.keys if chain)
        where = location
    else:
        _refuse_password_alone(password, "truststore")
        return None
    if not found:
        raise ConfigError(
            f"The truststore {where} holds no certificates.",
            "Import the CA's: keytool -importcert -alias ca -file ca.pem -keystore FILE.",
        )
    return TrustStore(where, found)


def key_store(given: Mapping[str, str], files: ClientFiles = HERE) -> KeyStore | None:
    """The keystore that the properties name; None if they name none."""
    kind = _type(given, "ssl.keystore.type")
    key, chain, location, password = (
        _of(given, f"ssl.keystore.{name}")
        for name in ("key", "certificate.chain", "location", "password")
    )
    key_password = _of(given, "ssl.key.password")
    if key or chain or (location and kind == "PEM"):
        return _pem_key_store(given, files, kind, key, chain, location, key_password)
    if not location:
        _refuse_password_alone(password, "keystore")
        return None
    if password is None:
        raise ConfigError(
            f"ssl.keystore.location names {location}, and there is no ssl.keystore.password.",
            "Set ssl.keystore.password.",
        )
    contents = _open(files, location, password, "ssl.keystore", key_password or password)
    if not contents.keys:
        raise ConfigError(
            f"The keystore {location} holds no private key.",
            "Give ssl.keystore.location a store with the client's key and certificate.",
        )
    return _made(location, *_best(contents.keys, location))


def _pem_key_store(
    given: Mapping[str, str],
    files: ClientFiles,
    kind: str,
    key: str | None,
    chain: str | None,
    location: str | None,
    key_password: str | None,
) -> KeyStore:
    if not location and not (key and chain):
        there, missing = ("key", "certificate.chain") if key else ("certificate.chain", "key")
        raise ConfigError(
            f"ssl.keystore.{there} is set without ssl.keystore.{missing}.",
            f"Set ssl.keystore.{missing} too.",
        )
    _refuse_beside_pem(given, "keystore", key or chain, "key", kind)
    if location:
        text = _text(files, location, location)
        loaded = pem.private_key(text, location, key_password)
        return _made(location, loaded, pem.certificates(text, location))
    loaded = pem.private_key(key or "", "ssl.keystore.key", key_password)
    found = pem.certificates(chain or "", "ssl.keystore.certificate.chain")
    return _made("ssl.keystore.key", loaded, found)


def _refuse_beside_pem(
    given: Mapping[str, str], store: str, inline: str | None, name: str, kind: str
) -> None:
    """What Java does not let stand beside PEM."""
    if kind != "PEM":
        raise ConfigError(
            f"ssl.{store}.{name} holds PEM, and ssl.{store}.type is {kind}.",
            f"Set ssl.{store}.type=PEM.",
        )
    if inline and _of(given, f"ssl.{store}.location"):
        raise ConfigError(
            f"Both ssl.{store}.location and ssl.{store}.{name} are set.", "Leave one of them out."
        )
    if _of(given, f"ssl.{store}.password") is not None:
        only = " A PEM key's own password is ssl.key.password." if store == "keystore" else ""
        raise ConfigError(
            f"ssl.{store}.password is set, and a {store} of type PEM has no password.{only}",
            f"Leave ssl.{store}.password out.",
        )


def _refuse_password_alone(password: str | None, store: str) -> None:
    if password is not None:
        raise ConfigError(
            f"ssl.{store}.password is set without ssl.{store}.location.",
            f"Set ssl.{store}.location, or leave the password out.",
        )


# -- files ------------------------------------------------------------------------------------


def _open(
    files: ClientFiles, location: str, password: str | None, prefix: str, key_password: str | None
) -> _Contents:
    """A JKS or PKCS12 file; its keys only if `key_password` is given or the format opens them anyway."""
    data = _bytes(files, location, f"{prefix}.location")
    if data.startswith(jks.MAGIC):
        return _open_jks(data, location, password, prefix, key_password)
    if data.startswith(_DER_SEQUENCE):
        return _open_pkcs12(data, location, password, prefix)
    if data.startswith(jks.JCEKS_MAGIC):
        raise ConfigError(
            f"The store {location} is a JCEKS store, which is not supported.",
            "Convert it: keytool -importkeystore -srckeystore FILE -srcstoretype JCEKS "
            "-destkeystore NEW -deststoretype PKCS12.",
        )
    looks_pem = b"-----BEGIN " in data
    raise ConfigError(
        f"The store {location} is neither JKS nor PKCS12" + (", but PEM." if looks_pem else "."),
        f"Set {prefix}.type=PEM." if looks_pem else f"Check {prefix}.location.",
    )


def _open_jks(
    data: bytes, location: str, password: str | None, prefix: str, key_password: str | None
) -> _Contents:
    found = jks.entries(data, password, location, f"{prefix}.password")
    keys = []
    for entry in found:
        if isinstance(entry, jks.Hidden) and key_password is not None:
            der = jks.unlock(entry, key_password, location)
            keys.append((_loaded(der, location), entry.chain))
    trusted = [entry.certificate for entry in found if isinstance(entry, jks.Trusted)]
    if key_password is None:
        trusted += [entry.chain[0] for entry in found if isinstance(entry, jks.Hidden)]
    return _Contents(tuple(trusted), tuple(keys))


def _open_pkcs12(data: bytes, location: str, password: str | None, prefix: str) -> _Contents:
    try:
        found = pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        cause = (
            f"{prefix}.password is not set" if password is None else f"{prefix}.password is wrong"
        )
        raise ConfigError(
            f"The store {location} cannot be opened: {cause}, or the file is damaged.",
            f"Correct {prefix}.password; `keytool -list -keystore {location}` tells whether a "
            "password fits.",
        ) from error
    others = tuple(_as_der(each.certificate) for each in found.additional_certs)
    if found.key is None or found.cert is None:
        alone = () if found.cert is None else (_as_der(found.cert.certificate),)
        return _Contents(alone + others)
    trusted = [each for each in found.additional_certs if _is_entry(each)]
    chain = [each for each in found.additional_certs if each not in trusted]
    own = _as_der(found.cert.certificate)
    return _Contents(
        tuple(_as_der(each.certificate) for each in trusted),
        ((found.key, (own, *(_as_der(each.certificate) for each in chain))),),
    )


def _is_entry(certificate: pkcs12.PKCS12Certificate) -> bool:
    """Whether a certificate has an alias of its own; Java calls the rest of a key's chain by subjects, such as CN=middle."""
    return certificate.friendly_name is not None and b"=" not in certificate.friendly_name


def _loaded(der: bytes, where: str) -> PrivateKeyTypes:
    try:
        return load_der_private_key(der, None)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"The private key in {where} cannot be read: {error}.", "Use an RSA or EC key."
        ) from error


def _bytes(files: ClientFiles, location: str, key: str) -> bytes:
    try:
        return files.read(location)
    except OSError as error:
        raise ConfigError(
            f"{key}: {location} cannot be read: {error.strerror or error}.",
            "Check the path, and that this user may read the file.",
        ) from error


def _text(files: ClientFiles, location: str, where: str) -> str:
    data = _bytes(files, location, where)
    if data.startswith((jks.MAGIC, jks.JCEKS_MAGIC, _DER_SEQUENCE)):
        raise ConfigError(
            f"{where} is declared as PEM, and it is not text.", "Set its type to JKS or PKCS12."
        )
    return data.decode("ascii", "replace")


# -- keys and their certificates --------------------------------------------------------------


def _best(
    keys: tuple[tuple[PrivateKeyTypes, tuple[bytes, ...]], ...], where: str
) -> tuple[PrivateKeyTypes, tuple[bytes, ...]]:
    """Of several keys the first whose certificate is valid today."""
    if len(keys) > 1:
        log.warning("The keystore %s holds %d keys; the first valid one is used.", where, len(keys))
    valid = (each for each in keys if each[1] and not _is_expired(_parsed(each[1][0], where)))
    return next(valid, keys[0])


def _made(where: str, key: PrivateKeyTypes, chain: tuple[bytes, ...]) -> KeyStore:
    """The key with its own certificate first and whoever signed it after that, as TLS sends them."""
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    parsed = [(each, _parsed(each, where)) for each in chain]
    own = next((each for each in parsed if _public(each[1]) == public), None)
    if own is None:
        raise ConfigError(
            f"The private key and the certificate in {where} do not belong together.",
            "Put in the certificate that was issued for this key.",
        )
    ordered = [own]
    rest = [each for each in parsed if each is not own]
    while above := next((each for each in rest if each[1].subject == ordered[-1][1].issuer), None):
        ordered.append(above)
        rest.remove(above)
    if _is_expired(own[1]):
        ended = f"{own[1].not_valid_after_utc:%Y-%m-%d}"
        log.warning("Our certificate in %s has expired on %s.", where, ended)
    return KeyStore(
        where,
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        tuple(der for der, _ in ordered),
    )


def _parsed(der: bytes, where: str) -> x509.Certificate:
    try:
        return x509.load_der_x509_certificate(der)
    except ValueError as error:
        raise ConfigError(
            f"A certificate in {where} cannot be read: {error}.", "Have it issued anew."
        ) from error


def _public(certificate: x509.Certificate) -> bytes:
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _is_expired(certificate: x509.Certificate) -> bool:
    return certificate.not_valid_after_utc < datetime.datetime.now(datetime.UTC)


def _as_der(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.DER)


def _as_pem(der: bytes) -> bytes:
    return x509.load_der_x509_certificate(der).public_bytes(Encoding.PEM)


# -- properties -------------------------------------------------------------------------------


def _of(given: Mapping[str, str], key: str) -> str | None:
    """A property without the blanks around it, as Java takes it; None if it is not set or empty."""
    return given.get(key, "").strip() or None


def _type(given: Mapping[str, str], key: str) -> str:
    kind = (_of(given, key) or "JKS").upper()
    if kind not in _TYPES:
        raise ConfigError(f"{key}={kind} is not supported.", f"Use one of {', '.join(_TYPES)}.")
    return kind
