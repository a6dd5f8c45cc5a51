"""Logins at real brokers: every mechanism that they know without a KDC, in the clear and over TLS, let in and refused."""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import javaproperties
import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from kafka_tools import wait_for
from secured import SecuredCluster, jaas, secured_cluster

from sparkmirror.errors import AccessFailed, KafkaError
from sparkmirror.kafka.access import sasl
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings
from sparkmirror.tools.jvm import run_tool

USER, PASSWORD = "mirror", 'pass;word="\\ with ünicode and ﬁ'
WRONG = "hush-hush"
LOGINS = ("SASL_PLAINTEXT", "SASL_SSL")
PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SESSION_S = 2.0  # brokers renew a connection's login once a second at most
_OAUTH = "org.apache.kafka.common.security.oauthbearer"
HANDLER = f"{_OAUTH}.OAuthBearerLoginCallbackHandler"


class Provider:
    """An OpenID provider: gives tokens to one client, signed with a key that the broker has in a file."""

    def __init__(self, directory: Path) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        self.lifetime = 3600
        self.audience = "brokers"
        self.given = 0
        self.keys = directory / "jwks.json"
        numbers = self._key.public_key().public_numbers()
        held = {
            "kty": "RSA",
            "kid": "k1",
            "use": "sig",
            "alg": "RS256",
            "n": _base64(numbers.n.to_bytes(256, "big")),
            "e": _base64(numbers.e.to_bytes(3, "big")),
        }
        self.keys.write_text(json.dumps({"keys": [held]}), encoding="ascii")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def token(self) -> str:
        now = int(time.time())
        claims = {"sub": "mirror", "iat": now, "exp": now + self.lifetime, "aud": self.audience}
        head = _base64(json.dumps({"alg": "RS256", "kid": "k1"}).encode())
        signed = f"{head}.{_base64(json.dumps(claims).encode())}"
        signature = self._key.sign(signed.encode(), padding.PKCS1v15(), SHA256())
        self.given += 1
        return f"{signed}.{_base64(signature)}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self
        expected = "Basic " + base64.b64encode(f"mirror-id:{PASSWORD}".encode()).decode()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                known = self.headers["Authorization"] == expected
                answer = (
                    {"access_token": provider.token()} if known else {"error": "invalid_client"}
                )
                self.send_response(200 if known else 401)
                self.end_headers()
                self.wfile.write(json.dumps(answer).encode())

            def log_message(self, *args: object) -> None:
                """Says nothing."""

        return Handler


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


@pytest.fixture(scope="module")
def provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    made = Provider(tmp_path_factory.mktemp("provider"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, provider: Provider
) -> Iterator[SecuredCluster]:
    keys = f"file://{provider.keys}"
    scram = jaas("SCRAM-SHA-512")
    with secured_cluster(
        tmp_path_factory.mktemp("secured"),
        plain_users={USER: PASSWORD},
        listeners={"FEW": "SASL_PLAINTEXT", "BRIEF": "SASL_PLAINTEXT", "OIDC": "SASL_PLAINTEXT"},
        properties={
            "delegation.token.secret.key": "any secret",
            "listener.name.few.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.few.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.brief.sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.brief.scram-sha-512.sasl.jaas.config": scram,
            "listener.name.brief.connections.max.reauth.ms": str(int(SESSION_S * 1000)),
            "listener.name.oidc.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oidc.oauthbearer.sasl.jaas.config": jaas("OAUTHBEARER"),
            "listener.name.oidc.oauthbearer.sasl.server.callback.handler.class": (
                f"{_OAUTH}.OAuthBearerValidatorCallbackHandler"
            ),
            "listener.name.oidc.sasl.oauthbearer.jwks.endpoint.url": keys,
            "listener.name.oidc.sasl.oauthbearer.expected.audience": "brokers",
        },
        jvm=(
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys}",
            f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={provider.keys}",
        ),
    ) as cluster:
        cluster.add_user(USER, PASSWORD)
        yield cluster


def enter(properties: dict[str, str], alias: str = "x") -> int:
    """Log in and ask something; gives the number of brokers."""
    cluster = Cluster(client_settings(alias, properties))
    try:
        cluster.refresh(())
        # The bootstrap address is one login, the broker's own address another.
        for node in cluster.brokers:
            cluster.connection(node)
        return len(cluster.brokers)
    finally:
        cluster.close()


def refusal(properties: dict[str, str], alias: str = "x") -> AccessFailed:
    with pytest.raises(AccessFailed) as raised:
        enter(properties, alias)
    assert raised.value.remedy
    assert WRONG not in str(raised.value)
    assert PASSWORD not in str(raised.value)
    return raised.value


@pytest.mark.parametrize("listener", LOGINS)
@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_users_with_passwords(
    secured: SecuredCluster, listener: str, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert enter(secured.client(listener, mechanism, username=USER, password=PASSWORD)) == 1
    for user, password in ((USER, WRONG), ("nobody", PASSWORD)):
        error = refusal(secured.client(listener, mechanism, username=user, password=password))
        assert f"did not let us in with {mechanism} as {user}" in error.message
        assert "Broker 127.0.0.1" in error.message
        assert "of cluster x" in error.message
    assert WRONG not in caplog.text
    assert PASSWORD not in caplog.text


@pytest.mark.parametrize("listener", LOGINS)
def test_unsecured_tokens(secured: SecuredCluster, listener: str) -> None:
    claim = {"unsecuredLoginStringClaim_sub": USER}
    assert enter(secured.client(listener, "OAUTHBEARER", **claim)) == 1
    short = {
        **claim,
        "unsecuredLoginStringClaim_scope": "x",
        "unsecuredLoginNumberClaim_nbf": "9e9",
    }
    properties = secured.client(listener, "OAUTHBEARER", **short)
    assert enter(properties) == 1  # what the broker does not check is let through
    claims = {
        **claim,
        "unsecuredLoginPrincipalClaimName": "me",
        "unsecuredLoginStringClaim_me": "m",
    }
    del claims["unsecuredLoginStringClaim_sub"]
    error = refusal(secured.client(listener, "OAUTHBEARER", **claims))
    assert "did not let us in with OAUTHBEARER as m" in error.message


def test_a_mechanism_that_the_listener_does_not_offer(secured: SecuredCluster) -> None:
    error = refusal(secured.client("FEW", "PLAIN", username=USER, password=PASSWORD))
    assert "does not offer sasl.mechanism=PLAIN" in error.message
    assert "which offers: SCRAM-SHA-512" in error.message


def test_a_listener_without_logins(secured: SecuredCluster) -> None:
    properties = secured.client("SASL_PLAINTEXT", "PLAIN", username=USER, password=PASSWORD)
    error = refusal(properties | {"bootstrap.servers": secured.open_bootstrap})
    assert "expects no login on this listener" in error.message
    assert "security.protocol" in error.remedy


def test_a_user_who_is_removed_and_comes_back(
    secured: SecuredCluster, unique: Callable[[str], str]
) -> None:
    user = unique("user")
    properties = secured.client("SASL_PLAINTEXT", "SCRAM-SHA-256", username=user, password="one")  # noqa: S106
    secured.add_user(user, "one")
    wait_for("first login", lambda: entered(properties))
    secured.remove_user(user)
    wait_for("refusal", lambda: not entered(properties))
    assert f"as {user}" in refusal(properties).message
    secured.add_user(user, "two")
    assert f"as {user}" in refusal(properties).message
    other = secured.client("SASL_PLAINTEXT", "SCRAM-SHA-256", username=user, password="two")  # noqa: S106
    wait_for("login with the new password", lambda: entered(other))


def entered(properties: dict[str, str]) -> bool:
    try:
        return enter(properties) == 1
    except AccessFailed:
        return False


@pytest.mark.slow
def test_a_user_whom_javas_tool_has_made(
    secured: SecuredCluster, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """Java does not prepare passwords: a ligature stays one, a soft hyphen too."""
    user, password = unique("user"), "ﬁve\u00ad ½\u00a0Ⅳ"
    file = tmp_path / "credentials.properties"
    ascii_only = password.encode("ascii", "backslashreplace").decode().replace("\\x", "\\u00")
    file.write_text(f"SCRAM-SHA-256=password={ascii_only}\n", encoding="ascii")
    run_tool(
        "kafka.admin.ConfigCommand",
        *("--bootstrap-server", secured.open_bootstrap, "--alter", "--add-config-file", str(file)),
        *("--entity-type", "users", "--entity-name", user),
    )
    properties = secured.client("SASL_SSL", "SCRAM-SHA-256", username=user, password=password)
    wait_for("login", partial(entered, properties))


@pytest.mark.slow
def test_a_delegation_token(secured: SecuredCluster, tmp_path: Path) -> None:
    own = secured.client("SASL_PLAINTEXT", "SCRAM-SHA-512", username=USER, password=PASSWORD)
    file = tmp_path / "client.properties"
    file.write_text(javaproperties.dumps(own), encoding="ascii")
    printed = run_tool(
        "org.apache.kafka.tools.DelegationTokenCommand",
        *("--bootstrap-server", secured.bootstrap("SASL_PLAINTEXT"), "--create"),
        *("--max-life-time-period", "-1", "--command-config", str(file)),
    )
    token, secret = printed.splitlines()[-1].split()[:2]
    options = {"username": token, "password": secret, "tokenauth": "true"}
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        properties = secured.client("SASL_SSL", mechanism, **options)
        wait_for("login", partial(entered, properties))
        wrong = secured.client("SASL_SSL", mechanism, **{**options, "password": WRONG})
        assert "delegation token" in refusal(wrong).remedy


class Logins:
    """Counts logins while they happen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        real = sasl.authenticate

        def counted(*args: object) -> float | None:
            self.count += 1
            return real(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(sasl, "authenticate", counted)


def test_a_session_is_renewed_on_its_connection(
    secured: SecuredCluster, monkeypatch: pytest.MonkeyPatch, unique: Callable[[str], str]
) -> None:
    user = unique("user")
    secured.add_user(user, "one")
    properties = secured.client("BRIEF", "SCRAM-SHA-512", username=user, password="one")  # noqa: S106
    wait_for("login", lambda: entered(properties))
    logins = Logins(monkeypatch)
    cluster = Cluster(client_settings("x", properties))
    try:
        cluster.refresh(())
        connection = cluster.any_connection()
        number = connection.fileno()
        began = time.monotonic()
        while time.monotonic() < began + SESSION_S:
            cluster.refresh(())
            time.sleep(0.02)
        assert logins.count >= 2
        assert cluster.any_connection() is connection
        assert connection.fileno() == number
        secured.remove_user(user)
        with pytest.raises(KafkaError, match=f"with SCRAM-SHA-512 as {user}"):
            while time.monotonic() < began + 30:
                cluster.refresh(())
                time.sleep(0.02)
    finally:
        cluster.close()


def oidc(secured: SecuredCluster, provider: Provider, password: str = PASSWORD) -> dict[str, str]:
    return {
        **secured.client("OIDC", "OAUTHBEARER", clientId="mirror-id", clientSecret=password),
        "sasl.login.callback.handler.class": HANDLER,
        "sasl.oauthbearer.token.endpoint.url": provider.url,
    }


def test_tokens_of_a_provider(
    secured: SecuredCluster, provider: Provider, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    before = provider.given
    cluster = unique("c")
    assert enter(oidc(secured, provider), cluster) == 1
    assert enter(oidc(secured, provider), cluster) == 1
    assert provider.given == before + 1
    assert "HTTP 401" in refusal(oidc(secured, provider, WRONG), unique("c")).message
    file = tmp_path / "token"
    file.write_text(provider.token(), encoding="ascii")
    in_file = {**oidc(secured, provider), "sasl.oauthbearer.token.endpoint.url": f"file://{file}"}
    assert enter(in_file, unique("c")) == 1


def test_a_token_for_somebody_else_is_refused_and_the_next_one_is_new(
    secured: SecuredCluster, provider: Provider, unique: Callable[[str], str]
) -> None:
    cluster = unique("c")
    provider.audience = "others"
    try:
        error = refusal(oidc(secured, provider), cluster)
    finally:
        provider.audience = "brokers"
    assert "did not let us in with OAUTHBEARER as mirror" in error.message
    assert "audience" in error.remedy
    assert enter(oidc(secured, provider), cluster) == 1


@pytest.mark.slow
def test_an_ending_token_is_renewed_on_its_connection(
    secured: SecuredCluster,
    provider: Provider,
    monkeypatch: pytest.MonkeyPatch,
    unique: Callable[[str], str],
) -> None:
    provider.lifetime = 8
    logins = Logins(monkeypatch)
    before = provider.given
    cluster = Cluster(client_settings(unique("c"), oidc(secured, provider)))
    try:
        cluster.refresh(())
        connection = cluster.any_connection()
        deadline = time.monotonic() + 60
        while logins.count < 3 and time.monotonic() < deadline:
            cluster.refresh(())
            time.sleep(0.02)
        assert logins.count >= 3
        assert cluster.any_connection() is connection
        assert provider.given - before >= 2
    finally:
        cluster.close()
        provider.lifetime = 3600
