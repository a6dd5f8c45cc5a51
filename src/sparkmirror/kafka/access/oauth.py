"""OAUTHBEARER: a login comes in, the token and the conversation about it go out.

Where tokens come from is named by `sasl.login.callback.handler.class`: by the name of a Java class that is known here, or as a
class of the user's, `package.module.Class`:

    class Tokens:
        def __init__(self, options: Mapping[str, str]) -> None: ...   # the options in sasl.jaas.config
        def token(self) -> str: ...                                    # a JWT, or (token, seconds that it is good for)
"""

from __future__ import annotations

import base64
import importlib
import json
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sparkmirror.errors import AccessFailed, ConfigError, ConnectionFailed, SparkMirrorError
from sparkmirror.kafka.access.files import NamedFile
from sparkmirror.kafka.access.login import Conversation, Login, LoginBroken, PerLogin
from sparkmirror.kafka.access.msk_iam import IamTokens
from sparkmirror.kafka.access.oidc import oidc_files, oidc_source
from sparkmirror.kafka.access.tokens import (
    Renewal,
    Token,
    TokenKeeper,
    TokenSource,
    checked_token,
    extensions_of,
)

_KEY = "sasl.login.callback.handler.class"
_KAFKA = "org.apache.kafka.common.security.oauthbearer"
_OIDC = f"{_KAFKA}.OAuthBearerLoginCallbackHandler"
_UNSECURED = f"{_KAFKA}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
_RESERVED = ("iat", "exp")
_LIFETIME = "unsecuredLoginLifetimeSeconds"


def bearer(login: Login, host: str) -> Conversation:
    """Log in with the token that this login's source gives."""
    keeper = _keepers.of(login)
    token = keeper.token(host)
    return Conversation(
        token.principal,
        "See the broker's log for why it does not take the token: its issuer, audience, scope and lifetime are checked there, "
        "and the clocks of provider, brokers and this machine must agree.",
        _conversation(token),
        lambda: keeper.drop(token),
    )


def _conversation(token: Token) -> Generator[bytes, bytes, None]:
    added = "".join(f"{name}={value}\x01" for name, value in token.extensions.items())
    answer = yield f"n,,\x01auth=Bearer {token.text}\x01{added}\x01".encode()
    if answer:
        # It refuses, and says why once more in its last answer, for which it wants a byte of ours first.
        yield b"\x01"
        raise LoginBroken("it refused the token and then did not say why")


def bearer_files(login: Login) -> tuple[NamedFile, ...]:
    """The files that the source of this login's tokens reads, as far as the properties name them."""
    return oidc_files(login) if _known_source(login) is oidc_source else ()


def _source(login: Login) -> TokenSource:
    make = _known_source(login)
    if make is not None:
        return make(login)
    return UserTokens(login, login.properties.get(_KEY, "").strip())


def _known_source(login: Login) -> Callable[[Login], TokenSource] | None:
    """What makes the source of a login's tokens; None if that is a class of the user's."""
    named = login.properties.get(_KEY, "").strip()
    return _JAVA_HANDLERS.get(named) if named else _unnamed(login)


def _unnamed(login: Login) -> Callable[[Login], TokenSource]:
    if any(name.startswith("unsecuredLogin") for name in login.options):
        return UnsecuredTokens
    if login.properties.get("sasl.oauthbearer.token.endpoint.url", "").strip():
        return oidc_source
    raise login.wrong(
        f"{_KEY} is not set, so there is no token to log in with.",
        f"Set {_KEY}={_OIDC} and sasl.oauthbearer.token.endpoint.url, or {_KEY}=package.module.Class.",
    )


@dataclass(frozen=True, slots=True)
class UnsecuredTokens:
    """Tokens that nobody signed, made of the options; for trials, as brokers take them only when told to."""

    login: Login

    def fetch(self, host: str, patient: bool) -> Token:
        now = time.time()
        options = self.login.options
        lifetime = self._whole(_LIFETIME, options.get(_LIFETIME, "3600"))
        claims: dict[str, Any] = {"exp": now + lifetime, "iat": now, **self._claims()}
        subject = options.get("unsecuredLoginPrincipalClaimName", "sub")
        principal = claims.get(subject)
        if not isinstance(principal, str) or not principal:
            raise self.login.wrong(
                f"sasl.jaas.config does not say who the token is for: it has no unsecuredLoginStringClaim_{subject}.",
                f'Add unsecuredLoginStringClaim_{subject}="…".',
            )
        text = f"{_base64(json.dumps({'alg': 'none'}))}.{_base64(json.dumps(claims))}."
        extensions = extensions_of(self.login, "unsecuredLoginExtension_")
        return Token(text, principal, now, now + lifetime, extensions)

    def _claims(self) -> dict[str, Any]:
        kinds: dict[str, Callable[[str, str], Any]] = {
            "unsecuredLoginStringClaim_": lambda name, value: value,
            "unsecuredLoginNumberClaim_": self._number,
            # The first character tells what separates the items.
            "unsecuredLoginListClaim_": lambda name, value: (
                value[1:].split(value[0]) if value else []
            ),
        }
        claims = {}
        for name, value in self.login.options.items():
            for prefix, read in kinds.items():
                if name.startswith(prefix):
                    claims[self._claim(name.removeprefix(prefix))] = read(name, value)
        return claims

    def _claim(self, name: str) -> str:
        if name in _RESERVED:
            raise self.login.wrong(
                f"sasl.jaas.config sets the claim {name}, which is set here.", "Remove that option."
            )
        return name

    def _number(self, name: str, value: str) -> float:
        try:
            return float(value)
        except ValueError:
            raise self.login.wrong(
                f"the option {name} in sasl.jaas.config is not a number.", f"Correct {name}."
            ) from None

    def _whole(self, name: str, value: str) -> int:
        if not value.isdigit() or int(value) == 0:
            raise self.login.wrong(
                f"the option {name} in sasl.jaas.config is not a number of seconds.",
                f"Correct {name}.",
            )
        return int(value)


class UserTokens:
    """Tokens from a class of the user's, which is made once a process."""

    def __init__(self, login: Login, named: str) -> None:
        self._login = login
        self._named = named
        self._extensions = extensions_of(login, "extension_")
        self._maker = self._make()

    def _make(self) -> Any:
        module, _, attribute = self._named.rpartition(".")
        try:
            found = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, SyntaxError, ValueError) as error:
            raise self._unfit(f" ({type(error).__name__})") from None
        if not isinstance(found, type) or not callable(getattr(found, "token", None)):
            raise self._unfit(": it has no method token()")
        with self._guarded():
            return found(dict(self._login.options))

    def _unfit(self, why: str) -> ConfigError:
        return self._login.wrong(
            f"{_KEY}={self._named} is neither a Java class that is known here nor a Python class that can be used{why}.",
            f"Use one of {', '.join(sorted(_JAVA_HANDLERS))}; or write a Python class with token(), put its module on the path "
            "of worker and executors, and name it package.module.Class.",
        )

    def fetch(self, host: str, patient: bool) -> Token:
        with self._guarded():
            given = self._maker.token()
        text, lifetime = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
        return checked_token(self._login, self._named, text, lifetime, self._extensions)

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Whatever the class raises becomes an error of ours, without its message: that may hold a secret."""
        what = f"{self._named}, which gets the tokens of {self._login.cluster}, failed"
        try:
            yield
        except SparkMirrorError:
            raise
        except OSError as error:
            raise ConnectionFailed(
                f"{what}: {type(error).__name__}.", "Check what it needs to reach."
            ) from None
        except Exception as error:  # noqa: BLE001 - a class of the user's may raise anything
            raise AccessFailed(
                f"{what}: {type(error).__name__}.", "Call its token() by itself to see why."
            ) from None


def _keeper(login: Login) -> TokenKeeper:
    return TokenKeeper(_source(login), Renewal.of(login))


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


_JAVA_HANDLERS: dict[str, Callable[[Login], TokenSource]] = {
    _OIDC: oidc_source,
    f"{_KAFKA}.secured.OAuthBearerLoginCallbackHandler": oidc_source,
    _UNSECURED: UnsecuredTokens,
    "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler": IamTokens,
}
_keepers: PerLogin[TokenKeeper] = PerLogin(_keeper)
