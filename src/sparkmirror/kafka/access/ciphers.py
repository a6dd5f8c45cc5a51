"""Names of cipher suites: as Java and the IANA write them in, as OpenSSL writes them out."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from functools import cache

from sparkmirror.errors import ConfigError

KEY = "ssl.cipher.suites"
TLS13 = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
_SIGNALS = ("TLS_EMPTY_RENEGOTIATION_INFO_SCSV", "TLS_FALLBACK_SCSV")  # no suites: Java lists them


@dataclass(frozen=True, slots=True)
class Suites:
    """Which suites may be agreed on: of TLS 1.2 by their OpenSSL names, of TLS 1.3 by the names that all use."""

    tls12: tuple[str, ...]
    tls13: tuple[str, ...]


def suites(names: list[str]) -> Suites:
    """What a list of `ssl.cipher.suites` allows; ConfigError for a name that there is not."""
    older, newer = [], []
    for name in names:
        if name in _SIGNALS:
            continue
        if name in TLS13:
            newer.append(name)
            continue
        ours = openssl_name(name)
        if ours is None or ours not in _known():
            raise ConfigError(
                f"{KEY}: {name} is not known, or too weak to be offered any more.",
                "Write names as Java does, e.g. TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 or "
                "TLS_AES_256_GCM_SHA384.",
            )
        older.append(ours)
    return Suites(tuple(older), tuple(newer))


def openssl_name(name: str) -> str | None:
    """TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA384 is ECDHE-RSA-AES256-SHA384, TLS_RSA_WITH_AES_128_GCM_SHA256 is AES128-GCM-SHA256."""
    exchange, split, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not split or not name.startswith("TLS_"):
        return None
    if "CHACHA20_POLY1305" in cipher:  # its hash is not in OpenSSL's name
        cipher = cipher.removesuffix("_SHA256")
    cipher = cipher.replace("_CBC", "")
    cipher = cipher.replace("AES_", "AES")
    keys = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return keys + cipher.replace("_", "-")


@cache
def _known() -> frozenset[str]:
    """What this OpenSSL can be asked for, except suites without encryption or authentication."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:!eNULL:!aNULL:@SECLEVEL=0")
    return frozenset(str(each["name"]) for each in context.get_ciphers())
