"""TLS between the processes of one Spark session.

All processes have the same key, which travels in the plans, and trust the certificate of that key alone. A process without a plan
can neither listen nor connect.
"""

from __future__ import annotations

import datetime
import functools
import ssl

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from sparkmirror.kafka.access.tls import load_pem

from .address import NO_TLS, SessionSecret, new_token

# The clocks of executors may differ from the driver's, and nobody knows how long a session runs.
_BEGIN = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_END = datetime.datetime(9999, 12, 31, tzinfo=datetime.UTC)


def new_secret(*, tls: bool) -> SessionSecret:
    """The secret of a new Spark session."""
    return SessionSecret(new_token(), _new_key() if tls else NO_TLS)


def _new_key() -> str:
    """A key and its certificate, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sparkmirror session")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
        .sign(key, hashes.SHA256())
    )
    plain = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return (plain + certificate.public_bytes(serialization.Encoding.PEM)).decode("ascii")


@functools.lru_cache(maxsize=4)
def server_context(session_key: str) -> ssl.SSLContext:
    context = _context(session_key, ssl.PROTOCOL_TLS_SERVER)
    # Tickets would be sent after the handshake; on a driver link, anything that can be read means its end.
    context.num_tickets = 0
    return context


@functools.lru_cache(maxsize=4)
def client_context(session_key: str) -> ssl.SSLContext:
    return _context(session_key, ssl.PROTOCOL_TLS_CLIENT)


def _context(session_key: str, protocol: int) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # there is one certificate for all hosts
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=session_key[session_key.index("-----BEGIN CERT") :])
    load_pem(context, session_key.encode("ascii"))
    return context
