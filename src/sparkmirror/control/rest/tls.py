"""TLS of the REST server and of what workers ask of each other: properties come in, contexts go out.

Keys and certificates are PEM, in files or inline. The properties are `ssl.*`.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path

from sparkmirror.errors import ConfigError

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def server_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """For https listeners; ConfigError if there is no key, or it cannot be read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, given)
    if not _load_key(context, given):
        raise ConfigError(
            "An https listener needs a key and a certificate.",
            "Set ssl.keystore.type=PEM and ssl.keystore.location to a file with both.",
        )
    wanted = given.get("ssl.client.auth", "none").strip().lower() or "none"
    if wanted not in _CLIENT_AUTH:
        raise ConfigError(f"ssl.client.auth: {wanted} is none of {', '.join(_CLIENT_AUTH)}.")
    context.verify_mode = _CLIENT_AUTH[wanted]
    if context.verify_mode is not ssl.CERT_NONE:
        _load_trust(context, given)
    return context


def client_context(given: Mapping[str, str]) -> ssl.SSLContext:
    """For requests to other workers: who they must be, and who we are to them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, given)
    _load_trust(context, given)
    _load_key(context, given)
    context.check_hostname = bool(
        given.get("ssl.endpoint.identification.algorithm", "https").strip()
    )
    return context


def _restrict(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    names = [name.strip() for name in given.get("ssl.enabled.protocols", "").split(",")]
    named = [name for name in names if name]
    unknown = [name for name in named if name not in _VERSIONS]
    if unknown:
        raise ConfigError(f"ssl.enabled.protocols: {unknown[0]} is none of {', '.join(_VERSIONS)}.")
    versions = [_VERSIONS[name] for name in named] or [ssl.TLSVersion.TLSv1_2]
    context.minimum_version = min(versions)
    if named:
        context.maximum_version = max(versions)


def _load_key(context: ssl.SSLContext, given: Mapping[str, str]) -> bool:
    """False if no key is named."""
    chain, key = given.get("ssl.keystore.certificate.chain"), given.get("ssl.keystore.key")
    location = given.get("ssl.keystore.location")
    if not (location or chain or key):
        return False
    _require_pem(given, "ssl.keystore.type")
    password = given.get("ssl.key.password") or None
    try:
        if location:
            context.load_cert_chain(location, password=password or "")
        else:
            _load_inline(context, f"{key}\n{chain}\n", password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"The key and certificate in {location or 'ssl.keystore.key'} cannot be read: {error}.",
            "It must hold a private key and its chain of certificates as PEM, and ssl.key.password fit it.",
        ) from error
    return True


def _load_inline(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    # OpenSSL reads keys from files only; this one is ours alone and gone at once.
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "key.pem"
        file.touch(mode=0o600)
        file.write_text(pem, encoding="ascii")
        context.load_cert_chain(file, password=password or "")


def _load_trust(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    inline, location = (
        given.get("ssl.truststore.certificates"),
        given.get("ssl.truststore.location"),
    )
    if not (inline or location):
        context.load_default_certs()
        return
    _require_pem(given, "ssl.truststore.type")
    try:
        if location:
            context.load_verify_locations(cafile=location)
        else:
            context.load_verify_locations(cadata=inline)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"The certificates in {location or 'ssl.truststore.certificates'} cannot be read: {error}.",
            "They must be PEM.",
        ) from error


def _require_pem(given: Mapping[str, str], key: str) -> None:
    kind = given.get(key, "JKS").strip().upper()
    if kind != "PEM":
        raise ConfigError(
            f"{key}={kind} is not supported for REST listeners.",
            f"Convert the store to PEM and set {key}=PEM.",
        )
