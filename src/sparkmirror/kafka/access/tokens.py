"""Bearer tokens and when to renew them: a source of tokens comes in, a token that is still good goes out.

One keeper a process, cluster and set of credentials, so that many connections share a token. It renews on demand, when a login
asks for a token whose time to be renewed has come: brokers have connections log in again before their token ends, so that is soon
enough.
"""

from __future__ import annotations

import base64
import binascii
import logging
import random
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from sparkmirror.errors import AccessFailed, KafkaError
from sparkmirror.formats import java_json
from sparkmirror.kafka.access.login import Login

_LOG = logging.getLogger(__name__)
_RETRY_S = 10.0
_TOKEN_FORM = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token, by whose clock it is good from when to when (seconds since 1970), and whom it is for."""

    text: str = field(repr=False)
    principal: str
    begins: float
    ends: float
    extensions: Mapping[str, str] = field(default_factory=dict, repr=False)


class TokenSource(Protocol):
    """Where tokens come from."""

    def fetch(self, host: str, patient: bool) -> Token:
        """A new token, good for the cluster of which `host` is a broker; without patience it is tried once only.

        Raises AccessFailed if there is none to be had, ConnectionFailed if trying again may help.
        """
        ...


@dataclass(frozen=True, slots=True)
class Renewal:
    """`sasl.login.refresh.*`: when in a token's life the next one is fetched."""

    factor: float = 0.8
    jitter: float = 0.05
    least_period: float = 60.0
    buffer: float = 300.0

    @classmethod
    def of(cls, login: Login) -> Renewal:
        family, usual = "sasl.login.refresh", cls()
        return cls(
            login.number(f"{family}.window.factor", usual.factor),
            login.number(f"{family}.window.jitter", usual.jitter),
            login.number(f"{family}.min.period.seconds", usual.least_period),
            login.number(f"{family}.buffer.seconds", usual.buffer),
        )

    def due(self, begins: float, ends: float, now: float, chance: float) -> float:
        """When to renew; least period and buffer count only for tokens that live longer than both together, as in Java."""
        wanted = begins + (ends - begins) * (self.factor + self.jitter * chance)
        if ends - now < self.least_period + self.buffer:
            return wanted
        return max(min(wanted, ends - self.buffer), now + self.least_period)


class TokenKeeper:
    """One token, shared by all connections that log in with the same credentials.

    Invariants: at most one thread fetches at a time; a token that has ended is never given out; as long as the old token is good,
    failing to renew it is a warning, and tried again after ten seconds.
    """

    def __init__(
        self, source: TokenSource, renewal: Renewal, clock: Callable[[], float] = time.time
    ) -> None:
        self._source = source
        self._renewal = renewal
        self._clock = clock
        self._lock = threading.Lock()
        self._token: Token | None = None
        self._due = 0.0

    def token(self, host: str) -> Token:
        with self._lock:
            now = self._clock()
            held = self._token
            if held is not None and now < min(self._due, held.ends):
                return held
            try:
                token = self._source.fetch(host, patient=held is None or held.ends <= now)
            except KafkaError as error:
                if held is None or held.ends <= now:
                    raise
                _LOG.warning("The token of %s could not be renewed. %s", held.principal, error)
                self._due = now + _RETRY_S
                return held
            chance = random.random()  # noqa: S311 - jitter, not a secret
            self._due = self._renewal.due(token.begins, token.ends, now, chance)
            self._token = token
            return token

    def drop(self, token: Token) -> None:
        """A broker refused this token: fetch another one next time."""
        with self._lock:
            if self._token is token:
                self._token = None


def claims_of(text: str) -> dict[str, Any]:
    """What a JWT says of itself, unverified (the broker does that); nothing for a token of another kind."""
    parts = text.split(".")
    if len(parts) != 3:
        return {}
    try:
        claims = java_json.decode(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def checked_token(
    login: Login, giver: str, text: object, lifetime: float | None, extensions: Mapping[str, str]
) -> Token:
    """A token that `giver` gave for a login, with its times; AccessFailed if it is none, or has ended.

    `lifetime` counts, in seconds from now, where the token itself does not say when it ends.
    """
    if not isinstance(text, str) or not _TOKEN_FORM.fullmatch(text):
        raise AccessFailed(
            f"{giver} gave something that is not a token, for {login.cluster}.",
            "A token is made of letters, digits and -._~+/ only; see what it answers.",
        )
    now = time.time()
    claims = claims_of(text)
    ends = _seconds(claims.get("exp"), None if lifetime is None else now + lifetime)
    if ends is None:
        raise AccessFailed(
            f"{giver} gave a token for {login.cluster} that does not say when it ends.",
            "Let it give a JWT with the claim exp, or say how long the token is good for.",
        )
    if ends <= now:
        raise AccessFailed(
            f"{giver} gave a token for {login.cluster} that ended {now - ends:.0f} s ago by this machine's clock.",
            "Set the clocks of this machine and of the provider right, or let the provider give new tokens.",
        )
    issued = _seconds(claims.get("iat"), None)
    if issued is not None and issued > now:
        # The provider's clock is ahead of ours: what it gave just now lives as long as it says, but from now on.
        issued, ends = now, now + max(ends - issued, 0)
    subject = claims.get(login.properties.get("sasl.oauthbearer.sub.claim.name", "sub"))
    principal = subject if isinstance(subject, str) and subject else "the bearer of a token"
    return Token(text, principal, now if issued is None else issued, ends, extensions)


def _seconds(value: object, otherwise: float | None) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else otherwise  # type: ignore[arg-type]


def extensions_of(login: Login, prefix: str) -> dict[str, str]:
    """SASL extensions: the login module's options with a prefix, checked as Java does."""
    found = {
        name.removeprefix(prefix): value
        for name, value in login.options.items()
        if name.startswith(prefix)
    }
    for name, value in found.items():
        if not _EXTENSION_NAME.fullmatch(name) or name == "auth":
            raise login.wrong(
                f"sasl.jaas.config has an option {prefix}… whose name is not made of letters, or is auth.",
                f"Correct the options {prefix}…",
            )
        if not _EXTENSION_VALUE.fullmatch(value):
            raise login.wrong(
                f"the option {prefix}{name} in sasl.jaas.config is empty or not in ASCII.",
                f"Correct {prefix}{name}.",
            )
    return found
