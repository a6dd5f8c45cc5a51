"""Tokens from an OpenID provider: id and secret of a client come in, the provider's token goes out; or one from a file.

As Kafka's own OAuthBearerLoginCallbackHandler asks for them: one POST with the grant `client_credentials`.
"""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote_plus, unquote, urlencode, urlsplit

from sparkmirror.errors import AccessFailed, ConfigError, ConnectionFailed
from sparkmirror.formats import java_json
from sparkmirror.java_options import VARIABLES, system_property
from sparkmirror.kafka.access.files import NamedFile
from sparkmirror.kafka.access.keystores import store_files
from sparkmirror.kafka.access.login import Login
from sparkmirror.kafka.access.tls import client_context
from sparkmirror.kafka.access.tokens import Token, TokenSource, checked_token, extensions_of

_URL = "sasl.oauthbearer.token.endpoint.url"
_CLIENT = "sasl.oauthbearer.client.credentials.client"
_ASSERTION = "sasl.oauthbearer.assertion."
_RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
_KAFKA = "org.apache.kafka.common.security.oauthbearer"
_RETRIEVERS = {
    f"{_KAFKA}.DefaultJwtRetriever": ("http", "https", "file"),
    f"{_KAFKA}.ClientCredentialsJwtRetriever": ("http", "https"),
    f"{_KAFKA}.FileJwtRetriever": ("file",),
}
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_MOST_BYTES = 1 << 20
_TIMEOUT_MS = 10_000
# What a provider answers while it is starting, busy or behind a gateway; other answers do not change by asking again.
_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


def oidc_source(login: Login) -> TokenSource:
    """The provider that the login's properties name."""
    url = _url(login)
    if url.scheme == "file":
        return FileTokens(login, unquote(url.path), extensions_of(login, "extension_"))
    return ClientCredentials(
        login,
        url,
        _credential(login, f"{_CLIENT}.id", "clientId"),
        _credential(login, f"{_CLIENT}.secret", "clientSecret"),
        login.properties.get("sasl.oauthbearer.scope") or login.options.get("scope", ""),
        extensions_of(login, "extension_"),
    )


def oidc_files(login: Login) -> tuple[NamedFile, ...]:
    """The files that getting a token takes: the token itself, or whom to trust as a provider."""
    url = _url(login)
    if url.scheme == "file":
        return (NamedFile(_URL, unquote(url.path)),)
    if url.scheme.lower() == "http":
        return ()
    return tuple(
        NamedFile(f"{file.key} in sasl.jaas.config", file.location)
        for file in store_files(login.options)
    )


def _url(login: Login) -> SplitResult:
    text = login.properties.get(_URL, "").strip()
    retriever = login.properties.get(_RETRIEVER, "").strip() or f"{_KAFKA}.DefaultJwtRetriever"
    schemes = _RETRIEVERS.get(retriever)
    if schemes is None:
        raise login.wrong(
            f"{_RETRIEVER}={retriever} is not known here.",
            f"Use one of {', '.join(_RETRIEVERS)}, or a Python class as sasl.login.callback.handler.class.",
        )
    url = urlsplit(text)
    if url.scheme.lower() not in schemes or (url.scheme != "file" and not url.hostname):
        raise login.wrong(
            f"{_URL} is not set, or not the address of a provider."
            if not url.scheme
            else f"{_URL} does not begin with {' or '.join(f'{scheme}://' for scheme in schemes)}.",
            f"Set {_URL}=https://provider/path/to/token.",
        )
    allowed = allowed_urls(os.environ)
    if allowed is not None and text not in allowed:
        raise login.wrong(
            f"{_URL} is not among the addresses that this machine allows.",
            f"Add it to -D{_ALLOWED}=… in {VARIABLES[0]}.",
        )
    return url


def allowed_urls(environment: Mapping[str, str]) -> frozenset[str] | None:
    """The addresses that tokens may come from, where the Java option that limits them is given; None: any."""
    listed = system_property(environment, _ALLOWED)
    if listed is None:
        return None
    return frozenset(item.strip() for item in listed.split(",") if item.strip())


def _credential(login: Login, key: str, option: str) -> str:
    value = login.properties.get(key) or login.options.get(option)
    signed = [name for name in login.properties if name.startswith(_ASSERTION)]
    if not value and signed:
        raise login.wrong(
            f"{signed[0]} is set, but assertions instead of a secret are not known here.",
            f"Set {key}, or get the tokens with a Python class (sasl.login.callback.handler.class).",
        )
    if not value:
        raise login.wrong(
            f"neither {key} is set nor has sasl.jaas.config an option {option}.",
            f"Set one of them, as the provider at {_URL} knows this client.",
        )
    return value


@dataclass(frozen=True, slots=True)
class FileTokens:
    """Tokens that somebody else puts into a file, read anew each time."""

    login: Login
    path: str
    extensions: Mapping[str, str] = field(repr=False)

    def fetch(self, host: str, patient: bool) -> Token:
        try:
            text = self.login.files.read(self.path).decode().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AccessFailed(
                f"The token of {self.login.cluster} cannot be read from {self.path}: {type(error).__name__}.",
                f"Correct {_URL}, and see that the file is there and may be read.",
            ) from None
        return checked_token(self.login, f"File {self.path}", text, None, self.extensions)


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """Tokens for a client's id and secret."""

    login: Login
    url: SplitResult
    client: str
    secret: str = field(repr=False)
    scope: str
    extensions: Mapping[str, str] = field(repr=False)

    def fetch(self, host: str, patient: bool) -> Token:
        """Try again, ever later, as long as `sasl.login.retry.backoff.max.ms`; without patience just once."""
        wait = self.login.number("sasl.login.retry.backoff.ms", 100) / 1000
        most = self.login.number("sasl.login.retry.backoff.max.ms", 10_000) / 1000
        end = time.monotonic() + (most if patient else 0)
        while True:
            try:
                return self._fetch_once()
            except ConnectionFailed:
                left = end - time.monotonic()
                if left <= 0:
                    raise
                time.sleep(min(wait, left))
                wait *= 2

    def _fetch_once(self) -> Token:
        status, body = self._ask()
        if status in _PASSING:
            raise ConnectionFailed(
                f"{self._who()} answered with HTTP {status}.", "Check that the provider is well."
            )
        if status != http.HTTPStatus.OK:
            raise AccessFailed(
                f"{self._who()} refused client {self.client} a token: HTTP {status}{_reason(body)}.",
                f"Correct clientId, clientSecret and scope in sasl.jaas.config (or {_CLIENT}.*), or {_URL}.",
            )
        given = _object(body)
        text = given.get("access_token") or given.get("id_token")
        if not text:
            raise AccessFailed(
                f"{self._who()} answered without a token: there is no access_token in a JSON object.",
                f"Check that {_URL} is the address where tokens are given.",
            )
        lifetime = given.get("expires_in")
        seconds = float(lifetime) if isinstance(lifetime, int | float) else None
        return checked_token(self.login, self._who(), text, seconds, self.extensions)

    def _ask(self) -> tuple[int, bytes]:
        form = {"grant_type": "client_credentials", **({"scope": self.scope} if self.scope else {})}
        connect = self.login.number("sasl.login.connect.timeout.ms", _TIMEOUT_MS) / 1000
        read = self.login.number("sasl.login.read.timeout.ms", _TIMEOUT_MS) / 1000
        connection = self._connection(connect or None)
        try:
            connection.connect()
            connection.sock.settimeout(read or None)
            target = (self.url.path or "/") + (f"?{self.url.query}" if self.url.query else "")
            connection.request("POST", target, urlencode(form), self._headers())
            answer = connection.getresponse()
            return answer.status, answer.read(_MOST_BYTES)
        except ssl.SSLCertVerificationError as error:
            raise AccessFailed(
                f"{self._who()} is not who it should be: {error.verify_message or 'its certificate is not trusted'}.",
                'Trust its CA: ssl.truststore.location="…" ssl.truststore.type="PEM" among the options of sasl.jaas.config.',
            ) from None
        except (OSError, http.client.HTTPException) as error:
            cause = getattr(error, "strerror", None) or type(error).__name__
            raise ConnectionFailed(
                f"{self._who()} cannot be asked: {cause}.",
                f"Check {_URL}, the network, and that the provider is up.",
            ) from None
        finally:
            connection.close()

    def _connection(self, timeout: float | None) -> http.client.HTTPConnection:
        host = self.url.hostname or ""
        if self.url.scheme.lower() == "http":
            return http.client.HTTPConnection(host, self.url.port, timeout=timeout)
        context = provider_context(self.login)
        return http.client.HTTPSConnection(host, self.url.port, timeout=timeout, context=context)

    def _headers(self) -> dict[str, str]:
        client, secret = self.client, self.secret
        if self.login.properties.get("sasl.oauthbearer.header.urlencode", "").lower() == "true":
            client, secret = quote_plus(client), quote_plus(secret)
        encoded = base64.b64encode(f"{client}:{secret}".encode()).decode()
        return {
            "Accept": "application/json",
            "Authorization": f"Basic {encoded}",
            "Cache-Control": "no-cache",
            "Content-Type": "application/x-www-form-urlencoded",
        }

    def _who(self) -> str:
        where = f"{self.url.scheme}://{self.url.netloc.rpartition('@')[2]}{self.url.path}"
        return f"The token endpoint {where} of {self.login.cluster}"


def provider_context(login: Login) -> ssl.SSLContext:
    """Whom to trust as a provider: `ssl.*` among the login module's options says it, as in Java; else whom the system trusts."""
    given = {name: value for name, value in login.options.items() if name.startswith("ssl.")}
    try:
        return client_context(given, login.files)
    except ConfigError as error:
        raise login.wrong(f"{error.message} (options of sasl.jaas.config)", error.remedy) from None


def _object(body: bytes) -> dict[str, object]:
    try:
        given = java_json.decode(body)
    except ValueError:
        return {}
    return given if isinstance(given, dict) else {}


def _reason(body: bytes) -> str:
    """The error code of RFC 6749, where it is one; descriptions may repeat what was sent."""
    error = _object(body).get("error")
    known = isinstance(error, str) and error.isascii() and error.replace("_", "").isalpha()
    return f" ({error})" if known and len(str(error)) <= 64 else ""
