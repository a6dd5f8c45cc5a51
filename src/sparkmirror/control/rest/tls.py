"""TLS of the REST server and of what workers ask of each other: `ssl.*` properties come in, contexts go out.

Stores are those of Kafka's clients: JKS, PKCS12, and PEM in files or inline.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access import tls
from sparkmirror.kafka.access.files import ClientFiles
from sparkmirror.kafka.access.keystores import trust_store
from sparkmirror.kafka.access.tls import client_context

__all__ = ["client_context", "server_context"]

_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """For https listeners; ConfigError if there is no key, or it cannot be read.

    Each handshake looks whether the files of the stores have changed; then it is made with what is in them now.
    """

    def renew(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = _contexts.get(given)

    _contexts.get(given)  # an error now rather than at the first handshake
    # Versions, suites and whether a certificate is wanted are taken from here; keys and trust from the one that is kept.
    context = _without_stores(given)
    context.sni_callback = renew
    return context


def _new(given: Mapping[str, str], files: ClientFiles) -> ssl.SSLContext:
    context = _without_stores(given)
    if tls.load_key(context, given, files) is None:
        raise ConfigError(
            "An https listener needs a key and a certificate.",
            "Set ssl.keystore.location, ssl.keystore.type and ssl.keystore.password to a store with both.",
        )
    if context.verify_mode is ssl.CERT_REQUIRED and trust_store(given, files) is None:
        raise ConfigError(
            "ssl.client.auth=required without a truststore: whoever has a certificate of any public authority would be let in.",
            "Set ssl.truststore.location, ssl.truststore.type and ssl.truststore.password to a store with the authority that has "
            "signed the certificates of your clients.",
        )
    if context.verify_mode is not ssl.CERT_NONE:
        tls.load_trust(context, given, files)
    return context


def _without_stores(given: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.restrict(context, given)
    wanted = given.get("ssl.client.auth", "none").strip().lower() or "none"
    if wanted not in _CLIENT_AUTH:
        raise ConfigError(f"ssl.client.auth: {wanted} is none of {', '.join(_CLIENT_AUTH)}.")
    context.verify_mode = _CLIENT_AUTH[wanted]
    return context


_contexts = tls.Contexts(_new)
