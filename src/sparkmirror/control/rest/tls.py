"""TLS of the REST server and of what workers ask of each other: `ssl.*` properties come in, contexts go out.

Stores are those of Kafka's clients: JKS, PKCS12, and PEM in files or inline.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access import tls
from sparkmirror.kafka.access.tls import client_context

__all__ = ["client_context", "server_context"]

_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """For https listeners; ConfigError if there is no key, or it cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.restrict(context, given)
    if tls.load_key(context, given) is None:
        raise ConfigError(
            "An https listener needs a key and a certificate.",
            "Set ssl.keystore.location, ssl.keystore.type and ssl.keystore.password to a store with both.",
        )
    wanted = given.get("ssl.client.auth", "none").strip().lower() or "none"
    if wanted not in _CLIENT_AUTH:
        raise ConfigError(f"ssl.client.auth: {wanted} is none of {', '.join(_CLIENT_AUTH)}.")
    context.verify_mode = _CLIENT_AUTH[wanted]
    if context.verify_mode is not ssl.CERT_NONE:
        tls.load_trust(context, given)
    return context
