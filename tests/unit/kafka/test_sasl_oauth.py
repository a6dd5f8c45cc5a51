"""Bearer tokens: made, fetched from a provider over HTTP, from a file, from a user's class; kept, renewed and dropped."""

from __future__ import annotations

import base64
import json
import logging
import ssl
import sys
import threading
import time
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from certificates import Authority
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.errors import AccessFailed, ConfigError, ConnectionFailed, SparkMirrorError
from sparkmirror.kafka.access.login import MODULES, Login, login_of
from sparkmirror.kafka.access.oauth import bearer
from sparkmirror.kafka.access.oidc import allowed_urls, oidc_source
from sparkmirror.kafka.access.tokens import Renewal, Token, TokenKeeper, claims_of
from sparkmirror.kafka.settings import client_settings

HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
HUSH = "hush-hush"


def login(options: str = "", **properties: str) -> Login:
    """A login of a cluster of its own, so that no test meets the token of another."""
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return login_of(
        client_settings(
            f"c{time.monotonic_ns()}",
            {
                "bootstrap.servers": "b:9092",
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f"{MODULES['OAUTHBEARER'][0]} required {options};",
                **given,
            },
        )
    )


def encoded(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def jwt(**claims: object) -> str:
    now = time.time()
    return f"{encoded({'alg': 'RS256'})}.{encoded({'sub': 'mirror', 'iat': now, 'exp': now + 3600, **claims})}.c2ln"


def said(one: Login) -> tuple[str, dict[str, str]]:
    """The token and the extensions in the first message of a login."""
    first = next(bearer(one, "b").steps).decode()
    start, *parts = first.split("\x01")
    assert start == "n,,"
    assert parts[-2:] == ["", ""]
    fields = dict(part.split("=", 1) for part in parts[:-2])
    return fields.pop("auth").removeprefix("Bearer "), fields


@dataclass
class Provider:
    """A token endpoint on loopback: answers in turn, the last answer for ever; keeps what it was asked."""

    answers: list[tuple[int, str]] = field(default_factory=list)
    asked: list[tuple[Mapping[str, str], str]] = field(default_factory=list)
    url: str = ""

    def gives(self, *answers: tuple[int, Any]) -> None:
        self.answers = [
            (status, body if isinstance(body, str) else json.dumps(body))
            for status, body in answers
        ]


def serving(provider: Provider, context: ssl.SSLContext | None = None) -> Iterator[Provider]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            provider.asked.append((dict(self.headers), self.rfile.read(length).decode()))
            answers = provider.answers
            status, body = answers.pop(0) if len(answers) > 1 else answers[0]
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *args: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    scheme = "http" if context is None else "https"
    provider.url = f"{scheme}://127.0.0.1:{server.server_address[1]}/token?tenant=t"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def provider() -> Iterator[Provider]:
    yield from serving(Provider())


def oidc(provider: Provider, options: str = "", **properties: str) -> Login:
    return login(
        f'clientId="mirror-id" clientSecret="{HUSH}" {options}',
        sasl_login_callback_handler_class=HANDLER,
        sasl_oauthbearer_token_endpoint_url=provider.url,
        **{
            "sasl_login_retry_backoff_ms": "5",
            "sasl_login_retry_backoff_max_ms": "200",
            **properties,
        },
    )


# -- unsecured tokens -----------------------------------------------------------------------------


def test_unsecured_tokens_say_what_the_options_say() -> None:
    one = login(
        'unsecuredLoginStringClaim_sub="mirror" unsecuredLoginListClaim_scope="|a|b" '
        'unsecuredLoginNumberClaim_level="7" unsecuredLoginLifetimeSeconds="60" '
        'unsecuredLoginExtension_trace="t1"'
    )
    text, extensions = said(one)
    header, claims, signature = text.split(".")
    assert signature == ""
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "none"}
    read = json.loads(base64.urlsafe_b64decode(claims + "=="))
    assert read["exp"] - read["iat"] == 60
    assert abs(read["iat"] - time.time()) < 60
    assert (read["sub"], read["scope"], read["level"]) == ("mirror", ["a", "b"], 7)
    assert extensions == {"trace": "t1"}
    assert bearer(one, "b").principal == "mirror"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ('unsecuredLoginStringClaim_scope="x"', "no unsecuredLoginStringClaim_sub"),
        (
            'unsecuredLoginPrincipalClaimName="me" unsecuredLoginStringClaim_sub="x"',
            "unsecuredLoginStringClaim_me",
        ),
        ('unsecuredLoginStringClaim_sub="x" unsecuredLoginStringClaim_exp="1"', "the claim exp"),
        ('unsecuredLoginStringClaim_sub="x" unsecuredLoginNumberClaim_n="y"', "not a number"),
        ('unsecuredLoginStringClaim_sub="x" unsecuredLoginLifetimeSeconds="0"', "of seconds"),
        ('unsecuredLoginStringClaim_sub="x" unsecuredLoginExtension_a1="y"', "made of letters"),
        ('unsecuredLoginStringClaim_sub="x" unsecuredLoginExtension_auth="y"', "or is auth"),
        ('unsecuredLoginStringClaim_sub="x" unsecuredLoginExtension_a="ü"', "not in ASCII"),
    ],
)
def test_options_of_unsecured_tokens_that_are_wrong(options: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        bearer(login(options), "b")


def test_a_refused_token_is_answered_once_more_and_never_taken_for_a_success() -> None:
    steps = bearer(login('unsecuredLoginStringClaim_sub="x"'), "b").steps
    next(steps)
    assert steps.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(Exception, match="did not say why"):
        steps.send(b"")


# -- a provider -----------------------------------------------------------------------------------


def test_a_provider_is_asked_as_java_asks(provider: Provider) -> None:
    token = jwt()
    provider.gives((200, {"access_token": token, "expires_in": 3600}))
    one = oidc(provider, 'scope="read write" extension_logicalCluster="lkc-1"')
    assert said(one) == (token, {"logicalCluster": "lkc-1"})
    ((headers, body),) = provider.asked
    assert parse_qs(body) == {"grant_type": ["client_credentials"], "scope": ["read write"]}
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    given = base64.b64decode(headers["Authorization"].removeprefix("Basic "))
    assert given == f"mirror-id:{HUSH}".encode()
    assert bearer(one, "other-broker").principal == "mirror"
    assert len(provider.asked) == 1  # the token is shared


def test_the_newer_keys_win_and_are_url_encoded_if_asked(provider: Provider) -> None:
    provider.gives((200, {"id_token": jwt()}))
    one = oidc(
        provider,
        'scope="old"',
        sasl_oauthbearer_client_credentials_client_id="new id",
        sasl_oauthbearer_client_credentials_client_secret="a/b:c",  # noqa: S106
        sasl_oauthbearer_scope="new",
        sasl_oauthbearer_header_urlencode="true",
    )
    said(one)
    ((headers, body),) = provider.asked
    assert parse_qs(body)["scope"] == ["new"]
    given = base64.b64decode(headers["Authorization"].removeprefix("Basic "))
    assert given == b"new+id:a%2Fb%3Ac"


def test_a_provider_that_is_busy_is_asked_again(provider: Provider) -> None:
    provider.gives((503, "later"), (500, ""), (200, {"access_token": jwt()}))
    said(oidc(provider))
    assert len(provider.asked) == 3


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (
            (401, {"error": "invalid_client"}),
            AccessFailed,
            r"client mirror-id a token: HTTP 401 \(invalid_client\)",
        ),
        ((400, {"error": f"the secret {HUSH} is wrong"}), AccessFailed, "HTTP 400"),
        ((403, HUSH), AccessFailed, "HTTP 403"),
        ((404, ""), AccessFailed, "sasl.oauthbearer.token.endpoint.url"),
        ((302, ""), AccessFailed, "HTTP 302"),
        ((200, f"<html>{HUSH}"), AccessFailed, "without a token"),
        ((200, [1]), AccessFailed, "without a token"),
        ((200, {"token": HUSH}), AccessFailed, "without a token"),
        ((200, {"access_token": "no\x01token"}), AccessFailed, "not a token"),
        ((200, {"access_token": {"a": 1}}), AccessFailed, "not a token"),
        ((200, {"access_token": "opaque"}), AccessFailed, "does not say when it ends"),
        ((200, {"access_token": jwt(exp=time.time() - 90)}), AccessFailed, r"ended [0-9]+ s ago"),
        ((503, HUSH), ConnectionFailed, "answered with HTTP 503"),
    ],
)
def test_answers_that_are_no_token(
    provider: Provider, answer: tuple[int, Any], kind: type[SparkMirrorError], says: str
) -> None:
    provider.gives(answer)
    with pytest.raises(kind, match=says) as raised:
        bearer(oidc(provider), "b")
    text = str(raised.value)
    assert "of cluster c" in text
    assert raised.value.remedy
    for secret in (HUSH, "eyJ"):
        assert secret not in text


def test_an_opaque_token_is_good_for_as_long_as_the_provider_says(provider: Provider) -> None:
    provider.gives((200, {"access_token": "opaque", "expires_in": 60}))
    assert said(oidc(provider))[0] == "opaque"


def test_a_clock_that_is_behind_does_not_make_tokens_live_longer(provider: Provider) -> None:
    ahead = time.time() + 1000
    provider.gives((200, {"access_token": jwt(iat=ahead, exp=ahead + 60)}))
    token = oidc_source(oidc(provider)).fetch("b", patient=True)
    assert token.ends - token.begins == pytest.approx(60, abs=0.01)
    assert token.ends - time.time() < 61


def test_a_provider_that_is_not_there_may_come_back() -> None:
    gone = Provider(url="http://127.0.0.1:1/token")
    with pytest.raises(ConnectionFailed, match="cannot be asked") as raised:
        bearer(oidc(gone), "b")
    assert "127.0.0.1:1/token" in str(raised.value)


def test_a_provider_that_hangs_does_not_hold_us(provider: Provider) -> None:
    provider.gives((200, "late"))
    silent = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # accepts, never answers
    try:
        url = f"http://127.0.0.1:{silent.server_address[1]}/"
        with pytest.raises(ConnectionFailed, match="cannot be asked"):
            bearer(
                oidc(
                    Provider(url=url),
                    sasl_login_read_timeout_ms="50",
                    sasl_login_retry_backoff_max_ms="10",
                ),
                "b",
            )
    finally:
        silent.server_close()


def test_a_provider_over_tls_is_trusted_by_the_modules_options(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    broker = authority.issue("provider")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(broker.store("PEM").path)
    trust = " ".join(f'{name}="{value}"' for name, value in authority.truststore().items())
    for provider in serving(Provider(), context):
        provider.gives((200, {"access_token": jwt()}))
        said(oidc(provider, trust))
        with pytest.raises(AccessFailed, match="is not who it should be"):
            bearer(oidc(provider), "b")
        with pytest.raises(ConfigError, match=r"options of sasl\.jaas\.config"):
            bearer(
                oidc(provider, 'ssl.truststore.location="/no/such" ssl.truststore.type="PEM"'), "b"
            )


@pytest.mark.parametrize(
    ("properties", "options", "says"),
    [
        ({}, "", "sasl.login.callback.handler.class is not set"),
        ({"sasl.login.callback.handler.class": HANDLER}, "", "token.endpoint.url is not set"),
        ({"sasl.oauthbearer.token.endpoint.url": "ftp://a/b"}, "", "does not begin with http"),
        ({"sasl.oauthbearer.token.endpoint.url": "https:///x"}, "", "does not begin with|address"),
        ({"sasl.oauthbearer.token.endpoint.url": "https://a/b"}, "", "option clientId"),
        (
            {"sasl.oauthbearer.token.endpoint.url": "https://a/b"},
            "clientId=c",
            "option clientSecret",
        ),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "https://a/b",
                "sasl.oauthbearer.jwt.retriever.class": "com.example.Mine",
            },
            "",
            "com.example.Mine is not known",
        ),
        (
            {
                "sasl.oauthbearer.token.endpoint.url": "https://a/b",
                "sasl.oauthbearer.assertion.private.key.file": "/k",
            },
            "clientId=c",
            "assertions instead of a secret",
        ),
        ({"sasl.login.callback.handler.class": "com.example.Handler"}, "", "neither a Java class"),
        ({"sasl.login.callback.handler.class": "json.JSONDecoder"}, "", "neither a Java class"),
        ({"sasl.login.callback.handler.class": "Handler"}, "", "package.module.Class"),
    ],
)
def test_sources_that_cannot_be(properties: dict[str, str], options: str, says: str) -> None:
    one = login(options, **{name.replace(".", "_"): value for name, value in properties.items()})
    with pytest.raises(ConfigError, match=says):
        bearer(one, "b")


def test_a_limit_of_addresses_that_java_has_holds_here_too(monkeypatch: pytest.MonkeyPatch) -> None:
    option = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
    assert allowed_urls({}) is None
    assert sorted(
        allowed_urls({"KAFKA_OPTS": f"-Xmx1g {option}=https://a/t,https://b/t"}) or ()
    ) == [
        "https://a/t",
        "https://b/t",
    ]
    assert allowed_urls({"KAFKA_OPTS": f"'{option}="}) is None
    monkeypatch.setenv("KAFKA_OPTS", f"{option}=https://a/t")
    with pytest.raises(ConfigError, match="not among the addresses"):
        bearer(oidc(Provider(url="https://b/t")), "b")


# -- files and classes of the user's --------------------------------------------------------------


def test_a_file_is_read_anew(tmp_path: Path) -> None:
    file = tmp_path / "a token"
    where = f"file://{str(file).replace(' ', '%20')}"
    first, second = jwt(jti="1"), jwt(jti="2")
    one = login(sasl_oauthbearer_token_endpoint_url=where)
    with pytest.raises(AccessFailed, match=r"cannot be read from .*FileNotFoundError"):
        bearer(one, "b")
    file.write_text(f"{first}\n", encoding="ascii")
    conversation = bearer(one, "b")
    assert said(one)[0] == first
    file.write_text(second, encoding="ascii")
    conversation.refused()
    assert said(one)[0] == second


def user_class(monkeypatch: pytest.MonkeyPatch, token: Any) -> str:
    module = types.ModuleType("tokens_of_a_user")

    class Tokens:
        def __init__(self, options: Mapping[str, str]) -> None:
            self.options = options

        def token(self) -> object:
            return token(self.options)

    module.Tokens = Tokens  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return "tokens_of_a_user.Tokens"


def test_a_class_of_the_users_gives_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    text = jwt()
    named = user_class(
        monkeypatch, lambda options: text if options["kind"] == "jwt" else ("x", 9.0)
    )
    assert said(login("kind=jwt extension_a='b'", sasl_login_callback_handler_class=named)) == (
        text,
        {"a": "b"},
    )
    assert said(login("kind=opaque", sasl_login_callback_handler_class=named)) == ("x", {})


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (RuntimeError(HUSH), AccessFailed),
        (TimeoutError(HUSH), ConnectionFailed),
        (ConnectionFailed("The vault is asleep."), ConnectionFailed),
    ],
)
def test_what_a_class_of_the_users_raises(
    monkeypatch: pytest.MonkeyPatch, raised: Exception, kind: type[SparkMirrorError]
) -> None:
    def failing(options: Mapping[str, str]) -> object:
        raise raised

    named = user_class(monkeypatch, failing)
    with pytest.raises(kind) as caught:
        bearer(login(sasl_login_callback_handler_class=named), "b")
    assert HUSH not in str(caught.value)
    assert caught.value.__cause__ is None


# -- keeping and renewing -------------------------------------------------------------------------


@given(
    st.integers(1, 1_000_000),
    st.floats(0, 1),
    st.floats(0.5, 1),
    st.floats(0, 0.25),
    st.integers(0, 900),
    st.integers(0, 3600),
)
def test_renewal_comes_in_the_window_and_before_the_end(
    lifetime: int, chance: float, factor: float, jitter: float, least: int, buffer: int
) -> None:
    due = Renewal(factor, jitter, least, buffer).due(0, lifetime, 0, chance)
    wanted = lifetime * (factor + jitter * chance)
    if lifetime < least + buffer:
        assert due == wanted
    else:
        assert least <= due <= max(lifetime - buffer, least)
        assert due in (wanted, least, lifetime - buffer)


@dataclass
class Source:
    """Gives numbered tokens of ten minutes, or what it is told to raise."""

    clock: float = 1000.0
    fetched: int = 0
    failure: SparkMirrorError | None = None
    patience: list[bool] = field(default_factory=list)

    def fetch(self, host: str, patient: bool) -> Token:
        self.patience.append(patient)
        if self.failure is not None:
            raise self.failure
        self.fetched += 1
        return Token(f"t{self.fetched}", "p", self.clock, self.clock + 600)


def kept(source: Source) -> TokenKeeper:
    return TokenKeeper(
        source, Renewal(jitter=0.0, least_period=0.0, buffer=0.0), lambda: source.clock
    )


def test_a_token_is_kept_until_its_time_has_come() -> None:
    source = Source()
    keeper = kept(source)
    assert [keeper.token("b").text for _ in range(3)] == ["t1", "t1", "t1"]
    source.clock += 479
    assert keeper.token("b").text == "t1"
    source.clock += 2
    assert keeper.token("b").text == "t2"
    assert source.patience == [True, False]


def test_failing_to_renew_is_a_warning_while_the_token_is_good(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = Source()
    keeper = kept(source)
    keeper.token("b")
    source.failure = ConnectionFailed("The provider is away.")
    source.clock += 500
    with caplog.at_level(logging.WARNING):
        assert [keeper.token("b").text, keeper.token("b").text] == ["t1", "t1"]
    assert len(source.patience) == 2  # not asked again at once
    assert "The provider is away" in caplog.text
    source.clock += 101
    with pytest.raises(ConnectionFailed):
        keeper.token("b")
    source.failure = None
    assert keeper.token("b").text == "t2"


def test_a_refused_token_is_not_used_again() -> None:
    source = Source()
    keeper = kept(source)
    first = keeper.token("b")
    keeper.drop(first)
    assert keeper.token("b").text == "t2"
    keeper.drop(first)  # somebody else's late news
    assert keeper.token("b").text == "t2"


def test_many_threads_share_one_token() -> None:
    source = Source()
    keeper = kept(source)
    seen: list[str] = []
    threads = [
        threading.Thread(target=lambda: seen.append(keeper.token("b").text)) for _ in range(20)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == ["t1"] * 20


def test_nothing_secret_is_shown(provider: Provider) -> None:
    token = jwt()
    provider.gives((200, {"access_token": token}))
    one = oidc(provider)
    conversation = bearer(one, "b")
    for shown in (one, conversation, Token(token, "p", 0, 1)):
        assert HUSH not in repr(shown)
        assert token not in repr(shown)


@pytest.mark.parametrize(
    "claims", [b"[" * 100_000, b"{" + b'"a":{' * 50_000, b"\xff", b"[]", b"1" * 100_000]
)
def test_claims_that_are_none(claims: bytes) -> None:
    text = base64.urlsafe_b64encode(claims).decode().rstrip("=")
    assert claims_of(f"a.{text}.b") == {}
