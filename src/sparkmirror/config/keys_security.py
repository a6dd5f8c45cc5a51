"""The `ssl.*` and `sasl.*` keys of a Kafka 4.3 client, in the order in which Kafka defines them."""

from __future__ import annotations

from sparkmirror.config.keys import Importance, Key, KeyType
from sparkmirror.config.keys import plain_key as _key
from sparkmirror.config.validators import Between, Items, OneOf, Validator

HIGH, MEDIUM, LOW = Importance.HIGH, Importance.MEDIUM, Importance.LOW
_OAUTH = "org.apache.kafka.common.security.oauthbearer"


def _text(name: str, default: str | None, importance: Importance, doc: str) -> Key:
    return _key(name, KeyType.STRING, default, importance, doc)


def _secret(name: str, importance: Importance, doc: str) -> Key:
    return _key(name, KeyType.PASSWORD, None, importance, doc)


def _class(name: str, default: str | None, importance: Importance, doc: str) -> Key:
    return _key(name, KeyType.CLASS, default, importance, doc)


def _number(
    name: str, key_type: KeyType, default: str | None, doc: str, validator: Validator | None = None
) -> Key:
    return _key(name, key_type, default, LOW, doc, validator)


PROTOCOL_KEY = _key(
    "security.protocol",
    KeyType.STRING,
    "PLAINTEXT",
    MEDIUM,
    "How to talk to brokers: in the clear or over TLS, with or without SASL.",
    OneOf(("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT"), ignore_case=True),
)

SSL_KEYS: tuple[Key, ...] = (
    _text("ssl.protocol", "TLSv1.3", MEDIUM, "The TLS version to offer first."),
    _text("ssl.provider", None, MEDIUM, "The Java security provider for TLS."),
    _key(
        "ssl.cipher.suites", KeyType.LIST, "", LOW, "Cipher suites to allow; empty: all.", Items()
    ),
    _key(
        "ssl.enabled.protocols",
        KeyType.LIST,
        "TLSv1.2,TLSv1.3",
        MEDIUM,
        "TLS versions that may be agreed on.",
        Items(),
    ),
    _text("ssl.keystore.type", "JKS", MEDIUM, "Format of the key store: JKS, PKCS12 or PEM."),
    _text("ssl.keystore.location", None, HIGH, "File with the client's key and certificate."),
    _secret("ssl.keystore.password", HIGH, "Password of the key store file."),
    _secret("ssl.key.password", HIGH, "Password of the private key."),
    _secret("ssl.keystore.key", HIGH, "Private key in PEM form, instead of a file."),
    _secret("ssl.keystore.certificate.chain", HIGH, "Certificate chain in PEM form."),
    _secret("ssl.truststore.certificates", HIGH, "Trusted certificates in PEM form."),
    _text("ssl.truststore.type", "JKS", MEDIUM, "Format of the trust store: JKS, PKCS12 or PEM."),
    _text("ssl.truststore.location", None, HIGH, "File with the trusted certificates."),
    _secret("ssl.truststore.password", HIGH, "Password of the trust store file."),
    _text("ssl.keymanager.algorithm", "SunX509", LOW, "Java key manager algorithm."),
    _text("ssl.trustmanager.algorithm", "PKIX", LOW, "Java trust manager algorithm."),
    _text(
        "ssl.endpoint.identification.algorithm",
        "https",
        LOW,
        "How the broker's host name is checked against its certificate; empty: not at all.",
    ),
    _text("ssl.secure.random.implementation", None, LOW, "Java random generator for TLS."),
    _class("ssl.engine.factory.class", None, LOW, "Java class that builds TLS engines."),
)

_KERBEROS_KEYS = (
    _text("sasl.kerberos.service.name", None, MEDIUM, "Kerberos principal name of the brokers."),
    _text("sasl.kerberos.kinit.cmd", "/usr/bin/kinit", LOW, "Path of the kinit command."),
    _number(
        "sasl.kerberos.ticket.renew.window.factor",
        KeyType.DOUBLE,
        "0.8",
        "Share of a ticket's life after which it is renewed.",
    ),
    _number(
        "sasl.kerberos.ticket.renew.jitter",
        KeyType.DOUBLE,
        "0.05",
        "Random share added to the renewal time.",
    ),
    _number(
        "sasl.kerberos.min.time.before.relogin",
        KeyType.LONG,
        "60000",
        "Least time between two logins, in milliseconds.",
    ),
)

_LOGIN_REFRESH_KEYS = (
    _number(
        "sasl.login.refresh.window.factor",
        KeyType.DOUBLE,
        "0.8",
        "Share of a token's life after which it is refreshed.",
        Between(0.5, 1.0),
    ),
    _number(
        "sasl.login.refresh.window.jitter",
        KeyType.DOUBLE,
        "0.05",
        "Random share added to the refresh time.",
        Between(0.0, 0.25),
    ),
    _number(
        "sasl.login.refresh.min.period.seconds",
        KeyType.SHORT,
        "60",
        "Least time before a token is refreshed.",
        Between(0, 900),
    ),
    _number(
        "sasl.login.refresh.buffer.seconds",
        KeyType.SHORT,
        "300",
        "Time before a token ends by which it must have been refreshed.",
        Between(0, 3600),
    ),
)

_LOGIN_KEYS = (
    _text("sasl.mechanism", "GSSAPI", MEDIUM, "SASL mechanism."),
    _secret("sasl.jaas.config", MEDIUM, "Login module and its options, in JAAS form."),
    _class("sasl.client.callback.handler.class", None, MEDIUM, "Java client callback handler."),
    _class("sasl.login.callback.handler.class", None, MEDIUM, "Java login callback handler."),
    _class("sasl.login.class", None, MEDIUM, "Java login class."),
    _number("sasl.login.connect.timeout.ms", KeyType.INT, None, "Time to reach the provider."),
    _number("sasl.login.read.timeout.ms", KeyType.INT, None, "Time to read from the provider."),
    _number("sasl.login.retry.backoff.max.ms", KeyType.LONG, "10000", "Longest login retry wait."),
    _number("sasl.login.retry.backoff.ms", KeyType.LONG, "100", "First login retry wait."),
)

_TOKEN_KEYS = (
    _class(
        "sasl.oauthbearer.jwt.retriever.class",
        f"{_OAUTH}.DefaultJwtRetriever",
        MEDIUM,
        "Java class that fetches tokens.",
    ),
    _class(
        "sasl.oauthbearer.jwt.validator.class",
        f"{_OAUTH}.DefaultJwtValidator",
        MEDIUM,
        "Java class that checks tokens.",
    ),
    _text("sasl.oauthbearer.scope", None, MEDIUM, "Scope to ask the token endpoint for."),
    _text("sasl.oauthbearer.client.credentials.client.id", None, MEDIUM, "OAuth client id."),
    _secret("sasl.oauthbearer.client.credentials.client.secret", MEDIUM, "OAuth client secret."),
)

_ASSERTION_KEYS = (
    _key(
        "sasl.oauthbearer.assertion.algorithm",
        KeyType.STRING,
        "RS256",
        MEDIUM,
        "How the assertion is signed.",
        OneOf(("ES256", "RS256"), ignore_case=True),
    ),
    _text("sasl.oauthbearer.assertion.claim.aud", None, MEDIUM, "Audience of the assertion."),
    _number(
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        KeyType.INT,
        "300",
        "How long an assertion is valid.",
        Between(0, 86400),
    ),
    _text("sasl.oauthbearer.assertion.claim.iss", None, MEDIUM, "Issuer of the assertion."),
    _key(
        "sasl.oauthbearer.assertion.claim.jti.include",
        KeyType.BOOLEAN,
        "false",
        MEDIUM,
        "Whether each assertion carries an id of its own.",
    ),
    _number(
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        KeyType.INT,
        "60",
        "How long before now an assertion starts to be valid.",
        Between(0, 3600),
    ),
    _text("sasl.oauthbearer.assertion.claim.sub", None, MEDIUM, "Subject of the assertion."),
    _text("sasl.oauthbearer.assertion.file", None, MEDIUM, "File with a ready assertion."),
    _text("sasl.oauthbearer.assertion.private.key.file", None, MEDIUM, "Key file to sign with."),
    _secret("sasl.oauthbearer.assertion.private.key.passphrase", MEDIUM, "Password of that key."),
    _text("sasl.oauthbearer.assertion.template.file", None, MEDIUM, "File with fixed claims."),
)

_PROVIDER_KEYS = (
    _text("sasl.oauthbearer.scope.claim.name", "scope", LOW, "Claim that carries the scope."),
    _text("sasl.oauthbearer.sub.claim.name", "sub", LOW, "Claim that carries the subject."),
    _text("sasl.oauthbearer.token.endpoint.url", None, MEDIUM, "Where tokens are fetched."),
    _text("sasl.oauthbearer.jwks.endpoint.url", None, MEDIUM, "Where signing keys are fetched."),
    _number(
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        KeyType.LONG,
        "3600000",
        "How often signing keys are fetched again.",
    ),
    _number(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        KeyType.LONG,
        "10000",
        "Longest wait between tries to fetch signing keys.",
    ),
    _number(
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        KeyType.LONG,
        "100",
        "First wait between tries to fetch signing keys.",
    ),
    _number(
        "sasl.oauthbearer.clock.skew.seconds",
        KeyType.INT,
        "30",
        "How far clocks may differ when a token's times are checked.",
    ),
    _key(
        "sasl.oauthbearer.expected.audience",
        KeyType.LIST,
        "",
        HIGH,
        "Audiences of which a token must name one.",
        Items(),
    ),
    _text("sasl.oauthbearer.expected.issuer", None, HIGH, "Issuer that a token must name."),
    _key(
        "sasl.oauthbearer.header.urlencode",
        KeyType.BOOLEAN,
        "false",
        LOW,
        "Whether id and secret are URL-encoded in the request header.",
    ),
)

SASL_KEYS: tuple[Key, ...] = (
    *_KERBEROS_KEYS,
    *_LOGIN_REFRESH_KEYS,
    *_LOGIN_KEYS,
    *_TOKEN_KEYS,
    *_ASSERTION_KEYS,
    *_PROVIDER_KEYS,
)

SECURITY_KEYS: tuple[Key, ...] = (*SSL_KEYS, *SASL_KEYS)
