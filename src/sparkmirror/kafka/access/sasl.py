"""Logging in at a broker: settings and a way to exchange requests come in, the time that the session may last goes out.

Called for each new connection, and again on the same connection before its session ends (re-authentication).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any

from sparkmirror.errors import AccessFailed, BrokerError, ConnectionFailed, KafkaError
from sparkmirror.kafka import messages
from sparkmirror.kafka.access.kerberos import kerberos
from sparkmirror.kafka.access.login import Conversation, Login, LoginBroken, login_of
from sparkmirror.kafka.access.msk_iam import msk_iam
from sparkmirror.kafka.access.oauth import bearer
from sparkmirror.kafka.access.scram import scram
from sparkmirror.kafka.api_versions import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Api,
    Versions,
    unsupported,
)
from sparkmirror.kafka.settings import ClientSettings

Exchange = Callable[[Any, int], Any]


def authenticate(
    settings: ClientSettings,
    host: str,
    exchange: Exchange,
    versions: Mapping[int, tuple[int, int]],
) -> float | None:
    """Log in as the settings say. `exchange` sends one request in one version and waits for its answer.

    Gives the seconds after which the broker wants to be asked again, or None if never. Raises AccessFailed if the broker does not
    let us in, ConfigError if the settings cannot be right, ConnectionFailed where trying again may help.
    """
    login = login_of(settings)
    where = f"Broker {host} of {settings}"
    conversation = _CONVERSATIONS[login.mechanism](login, host)
    try:
        # What we have to say first may need a token from elsewhere: the broker is not kept waiting for that.
        first = next(conversation.steps)
        _shake_hands(where, login, exchange, versions)
        return _converse(where, login, conversation, first, exchange, versions)
    except LoginBroken as error:
        raise AccessFailed(
            f"{_login_at(where, login, conversation)} was broken off: {error}.",
            "Check that the address is that of the right cluster, and that nobody stands in between.",
        ) from None
    except ConnectionFailed as error:
        raise ConnectionFailed(
            f"{_login_at(where, login, conversation)} was cut short: {error.message}",
            error.remedy
            or "If it stays so, see the broker's log; check that security.protocol and sasl.mechanism fit the listener.",
        ) from None
    finally:
        conversation.steps.close()


def _login_at(where: str, login: Login, conversation: Conversation) -> str:
    return f"The login at {_small(where)} with {login.mechanism} as {conversation.principal}"


def _shake_hands(
    where: str, login: Login, exchange: Exchange, versions: Mapping[int, tuple[int, int]]
) -> None:
    """Agree on the mechanism."""
    request = messages.SaslHandshakeRequest(mechanism=login.mechanism)
    version = _version(where, SASL_HANDSHAKE, versions)
    answer = exchange(request, version)
    if answer.error_code == messages.NONE:
        return
    if answer.error_code == messages.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(sorted(answer.mechanisms)) or "none"
        raise AccessFailed(
            f"{where} does not offer sasl.mechanism={login.mechanism} on this listener, which offers: {offered}.",
            f"Set sasl.mechanism to one of these, or add {login.mechanism} to the brokers' sasl.enabled.mechanisms.",
        )
    if answer.error_code == messages.ILLEGAL_SASL_STATE:
        raise AccessFailed(
            f"{where} expects no login on this listener (ILLEGAL_SASL_STATE), but security.protocol asks for one.",
            "Set security.protocol to PLAINTEXT or SSL as the listener is, or use the address of a SASL listener.",
        )
    raise _refusal(answer.error_code, f"{where} refused the SASL handshake", None, "")


def _converse(
    where: str,
    login: Login,
    conversation: Conversation,
    first: bytes,
    exchange: Exchange,
    versions: Mapping[int, tuple[int, int]],
) -> float | None:
    """Say and hear what the mechanism asks for, until both sides are content."""
    outgoing = first
    while True:
        request = messages.SaslAuthenticateRequest(auth_bytes=outgoing)
        answer = exchange(request, _version(where, SASL_AUTHENTICATE, versions))
        if answer.error_code != messages.NONE:
            conversation.refused()
            raise _refusal(
                answer.error_code,
                f"{where} did not let us in with {login.mechanism} as {conversation.principal}",
                answer.error_message,
                conversation.remedy,
            )
        try:
            outgoing = conversation.steps.send(bytes(answer.auth_bytes or b""))
        except StopIteration:
            lifetime = getattr(answer, "session_lifetime_ms", 0) or 0
            return lifetime / 1000 if lifetime > 0 else None


def _version(where: str, api: Api, versions: Versions) -> int:
    """The newest version both speak."""
    version = api.version(versions)
    if version is None:
        refused = unsupported(api, versions, where)
        raise AccessFailed(
            refused.message, "Logins need both SaslHandshake 1 and SaslAuthenticate."
        )
    return version


def _refusal(code: int, what: str, detail: str | None, remedy: str) -> KafkaError:
    """AccessFailed, unless the broker's code says that trying again may help."""
    error: BrokerError = messages.broker_error(code, what, detail, remedy)
    return error if error.retriable else AccessFailed(error.message, error.remedy)


def _small(where: str) -> str:
    return where[:1].lower() + where[1:]


# -- mechanisms that need a user and a password ---------------------------------------------------


def _said(once: bytes) -> Generator[bytes, bytes, None]:
    yield once


def _plain(login: Login, host: str) -> Conversation:
    user, password = login.option("username"), login.option("password")
    return Conversation(user, _REFUSED_PLAIN, _said(f"\0{user}\0{password}".encode()))


def _scram(login: Login, host: str) -> Conversation:
    user, password = login.option("username"), login.option("password")
    extensions = {"tokenauth": "true"} if login.is_on("tokenauth") else None
    remedy = _REFUSED_DELEGATION if extensions else _REFUSED_SCRAM
    return Conversation(user, remedy, scram(login.mechanism, user, password, extensions))


_REFUSED_PLAIN = (
    "Correct username and password in sasl.jaas.config, or let the user in at the brokers."
)
_REFUSED_SCRAM = (
    "Correct username and password in sasl.jaas.config, or create the user's credentials for this mechanism "
    "(kafka-configs --alter --add-config 'SCRAM-SHA-…=[password=…]' --entity-type users)."
)
_REFUSED_DELEGATION = (
    "Put the id of a valid delegation token into username and its HMAC into password of sasl.jaas.config; "
    "it may have ended (kafka-delegation-tokens --describe)."
)

_CONVERSATIONS: dict[str, Callable[[Login, str], Conversation]] = {
    "PLAIN": _plain,
    "SCRAM-SHA-256": _scram,
    "SCRAM-SHA-512": _scram,
    "OAUTHBEARER": bearer,
    "AWS_MSK_IAM": msk_iam,
    "GSSAPI": kerberos,
}
