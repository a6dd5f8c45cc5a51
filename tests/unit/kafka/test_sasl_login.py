"""What properties of a login are taken, what is said of those that are not, and what each refusal of a broker becomes."""

from __future__ import annotations

import pickle
import sys
import types
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkmirror.errors import AccessFailed, BrokerError, ConfigError, ConnectionFailed
from sparkmirror.kafka import messages
from sparkmirror.kafka.access.login import MODULES, login_of
from sparkmirror.kafka.access.sasl import authenticate
from sparkmirror.kafka.settings import ClientSettings, client_settings

PLAIN = MODULES["PLAIN"][0]
SCRAM = MODULES["SCRAM-SHA-256"][0]
HUSH = "hush-hush"
VERSIONS = {17: (0, 1), 36: (0, 2)}


def cluster(mechanism: str | None, jaas: str | None, **others: str) -> ClientSettings:
    properties = {"bootstrap.servers": "b:9092", "security.protocol": "SASL_PLAINTEXT"}
    if mechanism is not None:
        properties["sasl.mechanism"] = mechanism
    if jaas is not None:
        properties["sasl.jaas.config"] = jaas
    return client_settings("a", properties | {k.replace("_", "."): v for k, v in others.items()})


def plain(**others: str) -> ClientSettings:
    return cluster("PLAIN", f'{PLAIN} required username="alice" password="{HUSH}";', **others)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (cluster("PLAIN", None), "sasl.jaas.config is not set"),
        (cluster("PLAIN", " "), "java.security.auth.login.config is not read"),
        (cluster("plain", f"{PLAIN} required;"), "sasl.mechanism=plain is not known"),
        (cluster("DIGEST-MD5", f"{PLAIN} required;"), "SCRAM-SHA-512"),
        (cluster("PLAIN", f"{SCRAM} required;"), f"names {SCRAM}, which does not fit"),
        (cluster("SCRAM-SHA-256", f"{PLAIN} required;"), f"Name {SCRAM}"),
        (cluster(None, f"{PLAIN} required;"), "does not fit sasl.mechanism=GSSAPI"),
        (cluster("PLAIN", f"com.example.MyLoginModule required p='{HUSH}';"), "MyLoginModule"),
        (cluster("PLAIN", f'"{HUSH}" required;'), "names another class"),
        (
            plain(sasl_client_callback_handler_class="com.example.Handler"),
            "sasl.client.callback.handler.class names the class com.example.Handler",
        ),
        (plain(sasl_login_class="com.example.Login"), "sasl.login.class names the class"),
        (
            plain(sasl_login_callback_handler_class="my.Tokens"),
            "cannot be used with sasl.mechanism=PLAIN",
        ),
    ],
)
def test_logins_that_cannot_be(settings: ClientSettings, says: str) -> None:
    with pytest.raises(ConfigError, match="Cluster a") as raised:
        login_of(settings)
    assert says in str(raised.value)
    assert HUSH not in str(raised.value)
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("mechanism", "options", "missing"),
    [
        ("PLAIN", "", "username"),
        ("PLAIN", "username='alice'", "password"),
        ("SCRAM-SHA-256", f"password='{HUSH}'", "username"),
        ("SCRAM-SHA-512", "username='alice' password=''", "password"),
    ],
)
def test_options_that_are_missing_are_named(mechanism: str, options: str, missing: str) -> None:
    settings = cluster(mechanism, f"{MODULES[mechanism][0]} required {options};")
    with pytest.raises(ConfigError, match=f"has no option {missing}") as raised:
        authenticate(settings, "b", Broker(), VERSIONS)
    assert HUSH not in str(raised.value)


@dataclass
class Answer:
    error_code: int = 0
    mechanisms: list[str] = field(default_factory=list)
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: int = 0


@dataclass
class Broker:
    """Answers as told, and keeps what it was asked."""

    handshake: Answer = field(default_factory=Answer)
    answers: list[Answer] = field(default_factory=lambda: [Answer()])
    asked: list[tuple[Any, int]] = field(default_factory=list)

    def __call__(self, request: Any, version: int) -> Any:
        self.asked.append((request, version))
        if isinstance(request, messages.SaslHandshakeRequest):
            return self.handshake
        answer = self.answers.pop(0)
        return answer


def test_plain_says_user_and_password_once() -> None:
    broker = Broker()
    assert authenticate(plain(), "b", broker, VERSIONS) is None
    (shaken, handshake_version), (said, version) = broker.asked
    assert (shaken.mechanism, handshake_version) == ("PLAIN", 1)
    assert (bytes(said.auth_bytes), version) == (f"\0alice\0{HUSH}".encode(), 2)


def test_the_session_lasts_as_long_as_the_broker_says() -> None:
    broker = Broker(answers=[Answer(session_lifetime_ms=90_500)])
    assert authenticate(plain(), "b", broker, VERSIONS) == 90.5
    old = Broker(answers=[Answer(session_lifetime_ms=1000)])
    assert authenticate(plain(), "b", old, {17: (0, 1), 36: (0, 0)}) == 1.0
    assert old.asked[1][1] == 0


@pytest.mark.parametrize("versions", [{}, {17: (0, 0), 36: (0, 2)}, {17: (0, 1)}])
def test_brokers_without_logins_that_we_speak(versions: dict[int, tuple[int, int]]) -> None:
    with pytest.raises(AccessFailed, match=r"(does not offer|offers) Sasl"):
        authenticate(plain(), "b", Broker(), versions)


@pytest.mark.parametrize(
    ("broker", "kind", "says"),
    [
        (
            Broker(Answer(33, ["SCRAM-SHA-512", "GSSAPI"])),
            AccessFailed,
            "does not offer sasl.mechanism=PLAIN on this listener, which offers: GSSAPI, SCRAM-SHA-512",
        ),
        (Broker(Answer(34)), AccessFailed, "expects no login on this listener"),
        (Broker(Answer(35)), AccessFailed, "refused the SASL handshake"),
        (
            Broker(answers=[Answer(58, error_message="Authentication failed")]),
            AccessFailed,
            "did not let us in with PLAIN as alice: SASL_AUTHENTICATION_FAILED",
        ),
        (Broker(answers=[Answer(7)]), BrokerError, "did not let us in with PLAIN as alice"),
    ],
)
def test_every_refusal_has_a_sentence(broker: Broker, kind: type[Exception], says: str) -> None:
    with pytest.raises(kind) as raised:
        authenticate(plain(), "broker-1", broker, VERSIONS)
    text = str(raised.value)
    assert says.lower() in text.lower()
    assert "broker-1" in text
    assert "cluster a" in text
    assert HUSH not in text
    assert str(pickle.loads(pickle.dumps(raised.value))) == text  # noqa: S301 - our own


def test_a_connection_that_ends_during_the_login_may_be_tried_again() -> None:
    def closing(request: Any, version: int) -> Any:
        raise ConnectionFailed("The connection to broker b broke: the broker closed it.")

    with pytest.raises(
        ConnectionFailed, match=r"login at broker b of cluster a .* as alice"
    ) as got:
        authenticate(plain(), "b", closing, VERSIONS)
    assert "security.protocol" in got.value.remedy
    assert got.value.__cause__ is None


def test_a_server_that_is_not_the_right_one() -> None:
    jaas = f'{SCRAM} required username="alice" password="{HUSH}";'
    broker = Broker(answers=[Answer(auth_bytes=b"r=other,s=AAAA,i=4096")])
    with pytest.raises(AccessFailed, match="was broken off: its answer does not belong") as raised:
        authenticate(cluster("SCRAM-SHA-256", jaas), "b", broker, VERSIONS)
    assert HUSH not in str(raised.value)


def test_kerberos_without_its_package_or_service(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = cluster(None, "com.sun.security.auth.module.Krb5LoginModule required;")
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparkmirror\[gssapi\]'"):
        authenticate(settings, "b", Broker(), VERSIONS)
    monkeypatch.setitem(sys.modules, "gssapi", types.ModuleType("gssapi"))
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.service\.name is not set"):
        authenticate(settings, "b", Broker(), VERSIONS)


def test_nothing_secret_is_shown() -> None:
    settings = plain(ssl_key_password=HUSH)
    login = login_of(settings)
    for shown in (settings, login, settings.security):
        assert HUSH not in repr(shown)
        assert HUSH not in str(shown)
