"""Where a request comes from: its headers come in, and why it is refused, if it is.

Whoever can reach a worker may have a browser, and pages from elsewhere may have that browser call the worker. Browsers tell where
the page is from (`Origin`, `Sec-Fetch-Site`); programs send neither, and are not asked.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from starlette.datastructures import Headers

from .cors import Cors

_CHANGES_NOTHING = ("GET", "HEAD")
_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Gate:
    """Whom a listener lets in: pages of its own and of the origins that are allowed, by the names in `hosts` (empty: by any)."""

    cors: Cors | None = None
    hosts: Collection[str] = ()

    def refusal(self, method: str, headers: Headers) -> str | None:
        """Why a request is refused; None if it is not."""
        host = headers.get("host", "")
        if self.hosts and host.lower() not in self.hosts and _name(host) not in self.hosts:
            return f"Host {host[:_SHOWN]} is not among rest.allowed.hosts."
        if method == "OPTIONS":  # a browser asks whether it may
            return None
        origin = headers.get("origin")
        if origin is None:
            is_foreign = headers.get("sec-fetch-site") == "cross-site"
            # A link that somebody follows shows him what he may see.
            is_link = method in _CHANGES_NOTHING and headers.get("sec-fetch-mode") == "navigate"
            if not is_foreign or is_link:
                return None
            return "A page from elsewhere has sent this, and its origin is not known."
        if self._is_own(origin, headers) or (self.cors is not None and self.cors.allows(origin)):
            return None
        return f"A page from {origin[:_SHOWN]} has sent this, which is not among access.control.allow.origin."

    def _is_own(self, origin: str, headers: Headers) -> bool:
        """Whether a page comes from here, perhaps through a proxy: pages from elsewhere cannot set that header unasked."""
        authority = origin.partition("://")[2].lower()
        ours = (headers.get("host", ""), headers.get("x-forwarded-host", ""))
        return bool(authority) and authority in (each.lower() for each in ours)


def _name(host: str) -> str:
    """The host without its port."""
    name, _, port = host.lower().rpartition(":")
    return name if port.isdigit() else host.lower()
