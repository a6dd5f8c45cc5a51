"""TLS towards a cluster: `ssl.*` properties of a Java client in, contexts out, made anew when a store's file changes."""

from __future__ import annotations

import logging
import ssl
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access import ciphers
from sparkmirror.kafka.access.files import HERE, ClientFiles, file_in_memory
from sparkmirror.kafka.access.keystores import KeyStore, key_store, store_files, trust_store
from sparkmirror.kafka.access.security import Security

log = logging.getLogger(__name__)

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_TOO_OLD = ("SSLv2Hello", "SSLv3", "TLSv1", "TLSv1.1")  # Java knows them and refuses them
_OPEN_ENDED = ("TLS", "SSL", "TLSv1.3")
_ENGINE = "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory"
_WITHOUT_EFFECT = {
    "ssl.provider": (),
    "ssl.secure.random.implementation": (),
    "ssl.keymanager.algorithm": ("SunX509", "NewSunX509", "PKIX", "IbmX509"),
    "ssl.trustmanager.algorithm": ("PKIX", "SunX509", "X509", "X.509", "SunPKIX", "IbmX509"),
}
_MOST_KEPT = 64
_Properties = tuple[tuple[str, str], ...]
_Stamps = tuple[Hashable, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Tls:
    """A context, and what handshakes with it have to be judged by."""

    context: ssl.SSLContext
    given: Mapping[str, str]
    ours: str
    """Who we say that we are; empty: nobody."""
    tls13_suites: tuple[str, ...]
    """Empty: any; else those that may be agreed on."""

    def allows(self, suite: str) -> bool:
        """Whether a suite of TLS 1.3 may be used."""
        return not self.tls13_suites or suite in self.tls13_suites

    def of(self, key: str) -> str:
        """A property as it was given; empty if it was not."""
        return self.given.get(key, "").strip()


def client_tls(alias: str, security: Security) -> Tls:
    """For connections to brokers of a cluster; ConfigError, naming the cluster and the key, if it cannot be made."""
    given = {key: value for key, value in security.properties if key.startswith("ssl.")}
    try:
        return _contexts.get(given, security.files)
    except ConfigError as error:
        raise ConfigError(f"Cluster {alias}: {error.message}", error.remedy) from error


def client_context(given: Mapping[str, str], files: ClientFiles = HERE) -> ssl.SSLContext:
    """A new context for connecting to whoever the properties trust, as whom they say."""
    return _new(given, files).context


# -- contexts, kept ---------------------------------------------------------------------------


class Contexts(Generic[T]):
    """Contexts of this process, one for each set of properties, the last so many.

    Invariants: a context is as new as the files were when it was asked for, unless they cannot be read right now: then the one
    before is used, and that is told once. Handing out is safe from any thread.
    """

    def __init__(self, make: Callable[[Mapping[str, str], ClientFiles], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._kept: dict[_Properties, tuple[_Stamps, T]] = {}
        self._told: set[_Properties] = set()

    def get(self, given: Mapping[str, str], files: ClientFiles = HERE) -> T:
        key = tuple(sorted(given.items()))
        locations = [file.location for file in store_files(given)]
        with self._lock:
            stamps = tuple(files.stamp(location) for location in locations)
            known = self._kept.get(key)
            if known is not None and known[0] == stamps:
                return known[1]
            try:
                made = self._make(given, files)
            except ConfigError as error:
                if known is None:
                    raise
                self._tell(key, error)
                return known[1]
            if known is not None:
                log.info("TLS: %s changed and was read anew.", " or ".join(locations))
            self._told.discard(key)
            self._kept[key] = (stamps, made)
            while len(self._kept) > _MOST_KEPT:
                self._kept.pop(next(iter(self._kept)))
            return made

    def _tell(self, key: _Properties, error: ConfigError) -> None:
        if key not in self._told:
            self._told.add(key)
            log.warning("%s New connections use what was read before.", error)


def _new(given: Mapping[str, str], files: ClientFiles) -> Tls:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    restrict(context, given)
    load_trust(context, given, files)
    ours = load_key(context, given, files)
    context.check_hostname = _checks_host(given)
    context.hostname_checks_common_name = True  # where a certificate has no other names, as in Java
    chosen = _suites(given)
    return Tls(context, given, str(ours or ""), () if chosen is None else chosen.tls13)


_contexts = Contexts(_new)


# -- what the properties say ------------------------------------------------------------------


def restrict(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    """Limit versions and suites; refuse what only Java can do."""
    engine = given.get("ssl.engine.factory.class", "").strip()
    if engine not in ("", _ENGINE):
        raise ConfigError(
            f"ssl.engine.factory.class={engine} is a Java class, which cannot be used here.",
            "Leave it out and give stores with ssl.truststore.* and ssl.keystore.*.",
        )
    for key, harmless in _WITHOUT_EFFECT.items():
        value = given.get(key, "").strip()
        if value and value not in harmless:
            log.warning("%s=%s has no effect: TLS is that of OpenSSL, not of a JVM.", key, value)
    # Brokers renegotiate nothing, and a read that has to write first is one thing less to go wrong.
    context.options |= ssl.OP_NO_RENEGOTIATION
    versions = _versions(given)
    chosen = _suites(given)
    if chosen is not None:
        # What is listed says which versions are left: those for which a suite is.
        if not chosen.tls13:
            versions = [each for each in versions if each != ssl.TLSVersion.TLSv1_3]
        if not chosen.tls12:
            versions = [each for each in versions if each != ssl.TLSVersion.TLSv1_2]
        if not versions:
            raise ConfigError(
                "No suite of ssl.cipher.suites belongs to a version of ssl.enabled.protocols and ssl.protocol.",
                "Add e.g. TLS_AES_256_GCM_SHA384 (TLSv1.3) or TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 (TLSv1.2).",
            )
        _set_suites(context, chosen)
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)


def _versions(given: Mapping[str, str]) -> list[ssl.TLSVersion]:
    named = _list(given, "ssl.enabled.protocols") or list(_VERSIONS)
    for name in named:
        if name in _TOO_OLD:
            log.warning("ssl.enabled.protocols: %s is not offered any more.", name)
        elif name not in _VERSIONS:
            raise ConfigError(
                f"ssl.enabled.protocols: {name} is none of {', '.join(_VERSIONS)}.",
                "Correct ssl.enabled.protocols.",
            )
    versions = [_VERSIONS[name] for name in named if name in _VERSIONS]
    first = given.get("ssl.protocol", "").strip() or "TLSv1.3"
    if first not in (*_OPEN_ENDED, *_VERSIONS, *_TOO_OLD):
        raise ConfigError(
            f"ssl.protocol={first} is none of {', '.join((*_OPEN_ENDED, 'TLSv1.2'))}.",
            "Correct ssl.protocol.",
        )
    if first not in _OPEN_ENDED:
        versions = [each for each in versions if first == "TLSv1.2" and each <= _VERSIONS[first]]
    if not versions:
        raise ConfigError(
            f"ssl.protocol={first} and ssl.enabled.protocols={','.join(named)} leave no version of TLS that is "
            "still offered.",
            "Set ssl.enabled.protocols=TLSv1.2,TLSv1.3 and leave ssl.protocol out.",
        )
    return versions


def _suites(given: Mapping[str, str]) -> ciphers.Suites | None:
    named = _list(given, ciphers.KEY)
    return ciphers.suites(named) if named else None


def _set_suites(context: ssl.SSLContext, chosen: ciphers.Suites) -> None:
    if chosen.tls12:
        context.set_ciphers(":".join(chosen.tls12))
    # Pythons that cannot choose among the suites of TLS 1.3 offer all three; the handshake's outcome is checked instead.
    choose = getattr(context, "set_ciphersuites", None)
    if chosen.tls13 and choose is not None:
        choose(":".join(chosen.tls13))


def _checks_host(given: Mapping[str, str]) -> bool:
    key = "ssl.endpoint.identification.algorithm"
    algorithm = given.get(key, "https").strip()
    if algorithm.lower() not in ("", "https"):
        raise ConfigError(
            f"{key}={algorithm} is not known.",
            "Use https, or leave it empty to check no host names.",
        )
    return bool(algorithm)


def _list(given: Mapping[str, str], key: str) -> list[str]:
    return [item.strip() for item in given.get(key, "").split(",") if item.strip()]


# -- stores into contexts ---------------------------------------------------------------------


def load_trust(
    context: ssl.SSLContext, given: Mapping[str, str], files: ClientFiles = HERE
) -> None:
    """Trust whom the truststore holds; without one, whom the system trusts."""
    store = trust_store(given, files)
    if store is None:
        context.load_default_certs()
        return
    # Java trusts every certificate of a truststore as it is, an intermediate or a broker's own too.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        context.load_verify_locations(cadata=b"".join(store.certificates))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"The certificates in {store.where} cannot be used: {error}.", "Have them issued anew."
        ) from error
    _tell_expired(context, store.where)


def _tell_expired(context: ssl.SSLContext, where: str) -> None:
    """Nothing but a warning, as in Java: brokers may not show any certificate that these have signed."""
    now = time.time()
    for each in context.get_ca_certs():
        ended = str(each["notAfter"])
        if ssl.cert_time_to_seconds(ended) < now:
            subject: Any = each["subject"]
            names = ", ".join(value for name in subject for _, value in name)
            log.warning("A trusted certificate in %s (%s) has expired on %s.", where, names, ended)


def load_key(
    context: ssl.SSLContext, given: Mapping[str, str], files: ClientFiles = HERE
) -> KeyStore | None:
    """Be whom the keystore names; None, and nobody, without one."""
    store = key_store(given, files)
    if store is None:
        return None
    try:
        load_pem(context, store.as_pem())
    except ssl.SSLError as error:
        raise ConfigError(
            f"The key and certificate in {store.where} cannot be used: {error.reason or error}.",
            "Use an RSA key of 2048 bits or more, or an EC key.",
        ) from error
    return store


def load_pem(context: ssl.SSLContext, pem: bytes) -> None:
    """Use a key and its certificates. OpenSSL reads keys from files only."""
    with file_in_memory(pem) as path:
        context.load_cert_chain(path, password="")
