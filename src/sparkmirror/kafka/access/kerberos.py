"""GSSAPI: a login and a broker's host in, the client's half of Kerberos's conversation out (RFC 4752, without a security layer).

Tickets come from a keytab or from the ticket cache, by the options that Java's Krb5LoginModule has; the package gssapi does the
cryptography, and renews a keytab's tickets by itself.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

from sparkmirror.errors import AccessFailed
from sparkmirror.kafka.access.files import NamedFile
from sparkmirror.kafka.access.login import Conversation, Login, LoginBroken

_SERVICE = "sasl.kerberos.service.name"
_OTHER_CACHE = re.compile(
    r"(?!FILE:)[A-Z]\w*:"
)  # of a type that is no file: KEYRING:, KCM:, DIR:, MEMORY:
_NO_LAYER = 1
_LAYERS_AND_SIZE = struct.Struct(">I")


def kerberos(login: Login, host: str) -> Conversation:
    """Log in with mechanism GSSAPI."""
    gssapi = _library(login)
    service = login.properties.get(_SERVICE, "").strip() or login.options.get("serviceName", "")
    if not service:
        raise login.wrong(
            f"{_SERVICE} is not set, which GSSAPI needs.",
            f"Set {_SERVICE} to the first part of the brokers' principal, usually kafka.",
        )
    principal = login.options.get("principal", "")
    name = principal or "the owner of the ticket cache"
    remedy = f"Check that the brokers' keytab holds {service}/{host}, and that the clocks agree."
    return Conversation(name, remedy, _conversation(gssapi, login, f"{service}@{host}"))


def _library(login: Login) -> Any:
    try:
        import gssapi
    except (ImportError, OSError):
        raise login.wrong(
            "sasl.mechanism=GSSAPI (also if none is set) needs the package gssapi, which is not installed.",
            "Install sparkmirror with the extra gssapi: pip install 'sparkmirror[gssapi]' (it needs MIT Kerberos); "
            "on executors, too. Or set sasl.mechanism.",
        ) from None
    return gssapi


def _conversation(gssapi: Any, login: Login, server: str) -> Generator[bytes, bytes, None]:
    try:
        with _store(login) as store:
            target = gssapi.Name(server, gssapi.NameType.hostbased_service)
            context = gssapi.SecurityContext(
                name=target,
                creds=_credentials(gssapi, login, store),
                usage="initiate",
                mech=gssapi.MechType.kerberos,
            )
            token = context.step(None)
            while not context.complete:
                token = context.step((yield token or b""))
        # The last token of ours, if there is one, is answered with the layers that the broker offers.
        offer = context.unwrap((yield token or b"")).message
        yield context.wrap(_choice(offer), False).message
    except gssapi.exceptions.GSSError as error:
        raise AccessFailed(
            f"Kerberos gives no ticket for {server} of {login.cluster}: {_reason(error)}.",
            "Check keyTab and principal in sasl.jaas.config (or kinit), krb5.conf, the KDC, and that the clocks agree.",
        ) from None


def _choice(offer: bytes) -> bytes:
    """No security layer: connections are protected by TLS, and Kafka offers nothing else."""
    if len(offer) != _LAYERS_AND_SIZE.size or not offer[0] & _NO_LAYER:
        raise LoginBroken("it wants a security layer, which Kafka does not have")
    return _LAYERS_AND_SIZE.pack(_NO_LAYER << 24)


def kerberos_files(login: Login) -> tuple[NamedFile, ...]:
    """The file with the login's keys or tickets.

    A ticket cache is not followed: it changes with each ticket for another broker.
    """
    keytab = _keytab(login)
    if keytab:
        return (NamedFile("keyTab in sasl.jaas.config", keytab),)
    cache = _cache(login)
    if not cache or _OTHER_CACHE.match(cache):
        return ()
    location = cache.removeprefix("FILE:")
    return (NamedFile("ticketCache in sasl.jaas.config", location, is_followed=False),)


def _keytab(login: Login) -> str:
    """Where the keytab is; empty if none is to be used."""
    return login.options.get("keyTab", "").removeprefix("file:") if login.is_on("useKeyTab") else ""


def _cache(login: Login) -> str:
    """The ticket cache that the login names."""
    return login.options.get("ticketCache", "")


@contextmanager
def _store(login: Login) -> Iterator[dict[str, str]]:
    """Where keys and tickets are, as gssapi is told; files that were sent exist for as long as the block runs."""
    keytab = _keytab(login)
    files = kerberos_files(login)
    if not files:
        cache = _cache(login)
        yield {"ccache": cache} if cache else {}
        return
    with login.files.path(files[0].location) as path:
        if keytab:
            # Tickets of a keytab stay in this process, and do not replace those in a shared cache.
            whose = hash((login.options.get("principal", ""), keytab))
            yield {"client_keytab": path, "ccache": f"MEMORY:sparkmirror-{whose:x}"}
        else:
            yield {"ccache": path}


def _credentials(gssapi: Any, login: Login, store: dict[str, str]) -> Any:
    """Whose tickets: those of a keytab's principal, or what is in the ticket cache."""
    principal = login.options.get("principal", "")
    name = gssapi.Name(principal, gssapi.NameType.kerberos_principal) if principal else None
    return gssapi.Credentials(name=name, usage="initiate", store=store or None)


def _reason(error: Any) -> str:
    """Kerberos's own words: they name principals and files, never keys."""
    try:
        return str(error.gen_message())
    except (AttributeError, ValueError):
        return type(error).__name__
