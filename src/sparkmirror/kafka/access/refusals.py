"""Why a broker and we do not come together: what TLS or a socket said in, an error with the cause and the remedy out.

What OpenSSL reports names neither the certificate nor the kind of listener. Both are found out by asking once more (`inquiry`).
"""

from __future__ import annotations

import datetime
import ssl

from cryptography import x509

from sparkmirror.errors import AccessFailed, ConnectionFailed, KafkaError
from sparkmirror.kafka.access.tls import Tls, client_tls
from sparkmirror.kafka.inquiry import (
    Where,
    offered_mechanisms,
    shown_certificate,
    speaks_plaintext,
    speaks_tls,
)

_EXPIRED, _NOT_YET = 10, 9  # OpenSSL's numbers of what is wrong with a certificate
_UNTRUSTED = (2, 18, 19, 20, 21)
_OTHER_HOST = (62, 64)
_NO_TLS = (
    "WRONG_VERSION_NUMBER",
    "RECORD_LAYER_FAILURE",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "UNEXPECTED_MESSAGE",
    "BAD_RECORD_TYPE",
)
_NO_VERSION = (
    "PROTOCOL_VERSION",
    "UNSUPPORTED_PROTOCOL",
    "NO_PROTOCOLS_AVAILABLE",
    "UNKNOWN_PROTOCOL",
    "WRONG_SSL_VERSION",
    "VERSION_TOO_LOW",
)
_NOTHING_COMMON = (
    "HANDSHAKE_FAILURE",
    "NO_SHARED_CIPHER",
    "NO_CIPHERS_AVAILABLE",
    "INSUFFICIENT_SECURITY",
    "WRONG_CIPHER_RETURNED",
    "ILLEGAL_PARAMETER",
)
_OF_OURS = {
    "CERTIFICATE_REQUIRED": "it demands one",
    "BAD_CERTIFICATE": "bad certificate",
    "UNSUPPORTED_CERTIFICATE": "unsupported certificate",
    "CERTIFICATE_REVOKED": "it was revoked",
    "CERTIFICATE_EXPIRED": "it has expired",
    "CERTIFICATE_UNKNOWN": "certificate unknown",
    "UNKNOWN_CA": "the CA that signed it is unknown to the broker",
    "ACCESS_DENIED": "access denied",
    "DECRYPT_ERROR": "its signature does not fit",
}


def of_handshake(where: Where, tls: Tls, error: OSError) -> KafkaError:
    """Why a TLS handshake came to nothing. AccessFailed, unless the connection merely broke."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _of_their_certificate(where, tls, error)
    known = _of_reason(where, tls, error)
    if known is not None:
        return known
    if isinstance(error, (ssl.SSLEOFError, ConnectionResetError, BrokenPipeError)):
        if speaks_plaintext(where):
            return _no_tls(where)
        return ConnectionFailed(
            f"{where} closed the connection during the TLS handshake.",
            "If it stays so, check that the port is that of an SSL or SASL_SSL listener, and the broker's log.",
        )
    if isinstance(error, ssl.SSLError):
        return AccessFailed(
            f"{where}: the TLS handshake failed: {said(error)}.",
            "Check the ssl.* settings against those of the broker's listener.",
        )
    return ConnectionFailed(
        f"{where}: the TLS handshake came to no end: {error.strerror or error}.",
        "Check the network, and that the port is that of an SSL or SASL_SSL listener.",
    )


def of_opening(where: Where, failed: ConnectionFailed) -> KafkaError:
    """Why a connection ended before the first answer came; `failed` itself where that may pass.

    With TLS 1.3 a broker judges our certificate when we think that the handshake is over.
    """
    cause = failed.__cause__
    security = where.settings.security
    if security.uses_tls:
        tls = client_tls(where.settings.alias, security)
        known = _of_reason(where, tls, cause) if isinstance(cause, OSError) else None
        return known or failed
    if isinstance(cause, TimeoutError) or not speaks_tls(where):
        return failed
    return AccessFailed(
        f"{where} speaks TLS on this listener, and security.protocol={security.protocol} does not.",
        "Set security.protocol=SSL, or SASL_SSL with a login; or use the port of a listener without TLS.",
    )


def of_first_call(where: Where, failed: ConnectionFailed) -> KafkaError:
    """Why a connection ended at the first request after ApiVersions; `failed` itself where that may pass."""
    security = where.settings.security
    if security.uses_sasl or isinstance(failed.__cause__, TimeoutError):
        return failed
    mechanisms = offered_mechanisms(where)
    if not mechanisms:
        return failed
    return AccessFailed(
        f"{where} wants a login on this listener, and security.protocol={security.protocol} has none.",
        f"Set security.protocol=SASL_{security.protocol}, sasl.mechanism to one of {', '.join(mechanisms)}, and "
        "sasl.jaas.config; or use the port of a listener without logins.",
    )


def said(error: OSError) -> str:
    """What the system or OpenSSL says of an error, without where in its source."""
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError)):
        return "the broker closed it"
    if isinstance(error, ssl.SSLError) and error.reason:
        return f"TLS says {error.reason}"
    return str(error.strerror or error)


def of_suite(where: Where, suite: str) -> AccessFailed:
    """The broker chose a suite of TLS 1.3 that is not allowed."""
    return AccessFailed(
        f"{where} chose {suite}, which ssl.cipher.suites does not list; this Python cannot offer only some suites of "
        "TLS 1.3.",
        f"Add {suite} to ssl.cipher.suites, or set ssl.enabled.protocols=TLSv1.2 and list suites of TLS 1.2.",
    )


def _of_reason(where: Where, tls: Tls, error: OSError) -> AccessFailed | None:
    """What an alert of the broker, or OpenSSL itself, says; None if it is nothing that is known."""
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    alert = reason.rpartition("ALERT_")[2]
    if "ALERT_" in reason and alert in _OF_OURS:
        return _of_our_certificate(where, tls, alert)
    if any(each in reason for each in _NO_VERSION):
        allowed = tls.of("ssl.enabled.protocols") or "TLSv1.2,TLSv1.3"
        return AccessFailed(
            f"{where} and we have no version of TLS in common: ssl.enabled.protocols is {allowed} here"
            + (f", ssl.protocol is {tls.of('ssl.protocol')}." if tls.of("ssl.protocol") else "."),
            "Allow a version in ssl.enabled.protocols that the broker's listener allows too.",
        )
    if reason in _NO_TLS:
        return _no_tls(where)
    if any(each in reason for each in _NOTHING_COMMON):
        listed = tls.of("ssl.cipher.suites")
        return AccessFailed(
            f"{where} found nothing in common with us in the TLS handshake ({reason}): ssl.cipher.suites "
            + (f"is {listed} here." if listed else "is not limited here."),
            "Allow a suite in ssl.cipher.suites that the broker's listener allows too, for the kind of its key (RSA or EC)"
            + ("." if tls.ours else "; if it demands a client certificate, set ssl.keystore.*."),
        )
    return None


def _of_our_certificate(where: Where, tls: Tls, alert: str) -> AccessFailed:
    if not tls.ours:
        return AccessFailed(
            f"{where} demands a client certificate, and there is none: ssl.keystore.location is not set.",
            "Set ssl.keystore.location, ssl.keystore.type and ssl.keystore.password to a store with a key and a certificate "
            "that the broker trusts.",
        )
    ours = tls.of("ssl.keystore.location") or "ssl.keystore.certificate.chain"
    return AccessFailed(
        f"{where} refused our certificate ({tls.ours}) from {ours}: {_OF_OURS[alert]}.",
        "Use a certificate that is valid and signed by a CA in the truststore of the broker's listener.",
    )


def _no_tls(where: Where) -> AccessFailed:
    protocol = where.settings.security.protocol
    other = "SASL_PLAINTEXT" if where.settings.security.uses_sasl else "PLAINTEXT"
    return AccessFailed(
        f"{where} speaks no TLS on this listener, and security.protocol={protocol} does.",
        f"Use the port of a listener with TLS, or set security.protocol={other}.",
    )


# -- the broker's certificate -----------------------------------------------------------------


def _of_their_certificate(
    where: Where, tls: Tls, error: ssl.SSLCertVerificationError
) -> AccessFailed:
    shown = shown_certificate(where, tls)
    what = f"{where} shows a certificate{_described(shown)}"
    code = error.verify_code
    if code in _UNTRUSTED:
        return _untrusted(what, tls)
    if code in (_EXPIRED, _NOT_YET):
        return AccessFailed(
            f"{what} that {_dates(shown, code)}.",
            "Have the broker's certificate renewed; if it is not the certificate, check the clock of this host.",
        )
    if code in _OTHER_HOST:
        names = ", ".join(_names(shown)) or "other names"
        return AccessFailed(
            f"{what} for {names}, not for {where.host}.",
            "Name the broker as its certificate does, in bootstrap.servers and its advertised.listeners, or have a certificate "
            "issued with this name; ssl.endpoint.identification.algorithm= (empty) switches the check off.",
        )
    return AccessFailed(
        f"{what} that is not accepted: {error.verify_message}.",
        "Have the broker's certificate issued anew.",
    )


def _untrusted(what: str, tls: Tls) -> AccessFailed:
    location = tls.of("ssl.truststore.location")
    if location or tls.of("ssl.truststore.certificates"):
        named = f"ssl.truststore.location={location}" if location else "ssl.truststore.certificates"
        return AccessFailed(
            f"{what} that is not signed by a CA in {named}.",
            "Add the certificate of the CA that signed it, or name the truststore that has it.",
        )
    return AccessFailed(
        f"{what} that is not signed by a CA which this system trusts, and ssl.truststore.location is not set.",
        "Set ssl.truststore.location to a store with the CA of the cluster.",
    )


def _described(shown: x509.Certificate | None) -> str:
    if shown is None:
        return ""
    subject, issuer = shown.subject.rfc4514_string(), shown.issuer.rfc4514_string()
    return f" ({subject or 'no subject'}, issued by {'itself' if subject == issuer else issuer})"


def _dates(shown: x509.Certificate | None, code: int) -> str:
    now = datetime.datetime.now(datetime.UTC)
    if code == _EXPIRED:
        if shown is None:
            return "has expired"
        if shown.not_valid_after_utc > now:
            return "is signed by a CA whose certificate has expired"
        return f"expired on {shown.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    if shown is None or shown.not_valid_before_utc < now:
        return "is not valid yet"
    return f"is valid only from {shown.not_valid_before_utc:%Y-%m-%d %H:%M} UTC on"


def _names(shown: x509.Certificate | None) -> list[str]:
    if shown is None:
        return []
    try:
        found = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return [shown.subject.rfc4514_string()]
    addresses = found.get_values_for_type(x509.IPAddress)
    return [*found.get_values_for_type(x509.DNSName), *map(str, addresses)]
