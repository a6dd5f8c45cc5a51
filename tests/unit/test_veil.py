"""What is hidden: names of secrets, secrets in properties, and texts that somebody else wrote."""

from __future__ import annotations

import io
import logging
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkmirror.config.keys import KeyType
from sparkmirror.config.keys_security import SECURITY_KEYS
from sparkmirror.control.rest.answers import failure_of
from sparkmirror.control.runs import trace_of
from sparkmirror.errors import ConfigError, SparkError
from sparkmirror.kafka.settings import client_settings
from sparkmirror.logs import _log_crash, _Veiled
from sparkmirror.secret_names import HIDDEN, is_secret, secrets_in
from sparkmirror.spark.worker import veiled
from sparkmirror.veil import VEIL, Veil

JAAS = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="token" password="hush \\"quoted\\" \\\\ hush" clientSecret=\'another-secret\' '
    'keyTab="/etc/some.keytab" awsRoleSecretAccessKey=plain-words;'
)


def test_a_password_of_kafka_is_a_secret_and_nothing_else_is() -> None:
    passwords = {key.name for key in SECURITY_KEYS if key.type is KeyType.PASSWORD}
    assert passwords == {key.name for key in SECURITY_KEYS if is_secret(key.name)}


@pytest.mark.parametrize(
    "name",
    [
        "source.cluster.sasl.jaas.config",
        "clientSecret",
        "my_password",
        "vault.token",
        "cloud.api.key",
        "aws_access_key",
        "fs.s3a.secret.key",
        "awsRoleSessionToken",
        "spark.kubernetes.authenticate.driver.oauthToken",
        "spark.hadoop.fs.azure.account.key.store.example.net",
    ],
)
def test_names_that_no_table_knows(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", ["password.file", "topics", "token.endpoint.url", "monkey"])
def test_names_of_what_may_be_shown(name: str) -> None:
    assert not is_secret(name)


def test_secrets_within_values() -> None:
    key = (
        "-----BEGIN PRIVATE KEY-----\n" + "A" * 64 + "\n" + "B" * 30 + "\n-----END PRIVATE KEY-----"
    )
    found = secrets_in(
        {
            "sasl.jaas.config": JAAS,
            "ssl.keystore.key": key,
            "ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----" + "C" * 64,
            "ssl.key.password": " long-enough ",
            "ssl.keystore.password": "short",
            "topics": "password-of-nobody",
        }
    )
    assert found == {
        'hush \\"quoted\\" \\\\ hush',
        'hush "quoted" \\ hush',
        "another-secret",
        "plain-words",
        "A" * 64,
        "B" * 30,
        "long-enough",
    }


def is_no_word(secret: str) -> bool:
    """Nor what stands in place of secrets."""
    return not (secret.isascii() and secret.strip().isalpha()) and HIDDEN not in secret


@given(
    st.lists(st.text(min_size=8, max_size=12).filter(is_no_word), min_size=1, max_size=5), st.text()
)
def test_nothing_learned_is_left(secrets: list[str], around: str) -> None:
    veil = Veil()
    for secret in secrets:
        veil.learn({"some.password": secret})
    text = around.join(secrets)
    hidden = veil.hide(f"{around}{text}{around}")
    assert not [s for s in secrets if len(s.strip()) >= 8 and s.strip() in hidden]


OURS = (
    "Its username and password are wrong: check both.",
    "ssl.truststore.password: the password does not open the store",
    "Set ssl.truststore.password=${file:…} (a reference), or 'password' in sasl.jaas.config",
    "password, truststore and changeit are words",
)


@pytest.mark.parametrize("secret", ["password", "changeit", "truststore"])
@pytest.mark.parametrize("text", OURS)
def test_sentences_of_ours_do_not_give_a_word_away_that_is_a_secret(secret: str, text: str) -> None:
    veil = Veil()
    veil.learn({"ssl.truststore.password": secret})
    assert veil.hide(text) == text


@pytest.mark.parametrize("secret", ["password", "changeit", "Correcthorse"])
def test_a_word_is_hidden_where_it_is_a_value(secret: str) -> None:
    veil = Veil()
    veil.learn({"ssl.truststore.password": secret, "ssl.key.password": "no-word-at-all"})
    for text in (
        f"ssl.truststore.password={secret}",
        f'password = "{secret}";',
        f"{{'ssl.truststore.password': '{secret}', 'n': 1}}",
        f'{{"ssl.truststore.password":"{secret}"}}',
        f"http://user:{secret}@host:1/",
        f"the password {secret} is wrong",
        f"passphrase: {secret}",
    ):
        assert secret not in veil.hide(text).replace("ssl.truststore.password", "").replace(
            "password =", ""
        ).replace("the password", ""), text
    assert veil.hide("it holds no-word-at-all, password=password2") == (
        "it holds [hidden], password=password2"
    )


def test_logs_hide_what_clients_came_in_with() -> None:
    client_settings(
        "A", {"bootstrap.servers": "a:1", "sasl.jaas.config": 'x required password="in-the-log";'}
    )
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(_Veiled("%(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    try:
        raise ValueError("a library says in-the-log")
    except ValueError:
        log.exception("It says %s.", "in-the-log")
    assert "in-the-log" not in written.getvalue()
    assert written.getvalue().count("[hidden]") == 3  # the line of source is in a trace, too
    assert VEIL.hide("in-the-log") == "[hidden]"


def test_a_message_stays_in_its_line() -> None:
    """A broker, or who names a connector, writes no lines of its own into the log."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(_Veiled("%(levelname)s %(message)s"))
    log = logging.Logger("test")
    log.addHandler(handler)
    log.warning("It says %s.", "no\r\nERROR all is lost\x1b[2J\u2028, schön")
    assert written.getvalue() == (
        "WARNING It says no\\r\\nERROR all is lost\\x1b[2J\\u2028, schön.\n"
    )


def test_a_long_text_costs_no_more_than_its_length() -> None:
    """Anybody who reaches REST may have one looked through, in a header."""
    veil = Veil()
    veil.learn({"ssl.keystore.password": "changeit"})
    begin = time.monotonic()
    assert veil.hide("password" * 40_000 + " changeit").endswith("password [hidden]")
    assert time.monotonic() - begin < 5


def test_a_thread_that_crashes_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    thread = threading.Thread(name="copy")
    error = ValueError("a mistake")
    _log_crash(threading.ExceptHookArgs((ValueError, error, None, thread)))
    _log_crash(threading.ExceptHookArgs((SystemExit, SystemExit(), None, thread)))
    assert [record.getMessage() for record in caplog.records] == ["Thread copy crashed."]


def test_settings_of_clients_show_no_secret() -> None:
    settings = client_settings(
        "A", {"bootstrap.servers": "a:1", "sasl.jaas.config": 'x required password="not-shown";'}
    )
    assert "not-shown" not in repr(settings) + str(settings)
    assert "not-shown" not in repr((settings.security, settings))


def test_what_a_task_fails_with_reaches_spark_without_secrets() -> None:
    VEIL.learn({"ssl.key.password": "of-the-executor"})
    with pytest.raises(SparkError, match=r"^ValueError: it holds \[hidden\]$"), veiled():
        raise ValueError("it holds of-the-executor")
    with pytest.raises(ValueError, match="nothing secret"), veiled():
        raise ValueError("nothing secret")


def test_the_longest_secret_is_looked_for_first() -> None:
    veil = Veil()
    veil.learn({"a.password": "abc-12345", "b.password": "abc-12345-more"})
    assert veil.hide("abc-12345-more and abc-12345") == "[hidden] and [hidden]"


def test_only_what_may_be_a_word_stays_where_it_is_none() -> None:
    veil = Veil()
    veil.learn({"a.password": "abcdefghijkl", "b.password": "abcdefghijklm"})
    assert veil.hide("the abcdefghijkl of abcdefghijklm") == "the abcdefghijkl of [hidden]"


def test_traces_and_answers_hide_what_was_learned() -> None:
    VEIL.learn({"z.password": "in-a-trace-12"})
    try:
        raise ConfigError("a library says in-a-trace-12")
    except ConfigError as error:
        assert "in-a-trace-12" not in trace_of(error)
        assert b"in-a-trace-12" not in failure_of(error).body
