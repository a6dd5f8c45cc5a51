"""Which login the properties of a cluster ask for: Java client properties in, mechanism and login module's options out.

Everything that can be wrong with them before a broker is asked is said here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from sparkmirror.errors import ConfigError
from sparkmirror.kafka.access.files import HERE, ClientFiles
from sparkmirror.kafka.access.jaas import JaasEntry, parse_jaas
from sparkmirror.kafka.settings import ClientSettings

_KAFKA = "org.apache.kafka.common.security"
_SCRAM = (f"{_KAFKA}.scram.ScramLoginModule",)
MODULES: dict[str, tuple[str, ...]] = {
    "PLAIN": (f"{_KAFKA}.plain.PlainLoginModule",),
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
    "OAUTHBEARER": (f"{_KAFKA}.oauthbearer.OAuthBearerLoginModule",),
    "GSSAPI": (
        "com.sun.security.auth.module.Krb5LoginModule",
        "com.ibm.security.auth.module.Krb5LoginModule",
    ),
    "AWS_MSK_IAM": ("software.amazon.msk.auth.iam.IAMLoginModule",),
}
_HANDLERS = {("AWS_MSK_IAM", "software.amazon.msk.auth.iam.IAMClientCallbackHandler")}
_JAAS = "sasl.jaas.config"
_MOST_LOGINS = 256
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Login:
    """One cluster's login. Options and properties may hold secrets, so they are not shown."""

    cluster: str
    mechanism: str
    options: Mapping[str, str] = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    key: Hashable = field(repr=False)
    """The same for logins that can share a token."""
    files: ClientFiles = HERE
    """Where the files are that options and properties name."""

    def option(self, name: str) -> str:
        """An option of the login module that the mechanism cannot do without."""
        value = self.options.get(name)
        if not value:
            raise ConfigError(
                f"{_capital(self.cluster)}: {_JAAS} has no option {name}, which {self.mechanism} needs.",
                f"Add {name}=\"…\" before the ';' of {_JAAS}.",
            )
        return value

    def is_on(self, name: str) -> bool:
        return self.options.get(name, "").strip().lower() == "true"

    def number(self, key: str, default: float) -> float:
        value = self.properties.get(key)
        if value is None or not value.strip():
            return default
        try:
            return float(value)
        except ValueError:
            raise ConfigError(
                f"{_capital(self.cluster)}: {key}={value} is not a number.", f"Correct {key}."
            ) from None

    def wrong(self, what: str, remedy: str) -> ConfigError:
        """An error in these properties."""
        return ConfigError(f"{_capital(self.cluster)}: {what}", remedy)


class LoginBroken(Exception):
    """The broker did not keep to the mechanism's protocol, or is not who it should be; says how, and nothing secret."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """The client's half of a login: `steps` yields what to send, takes what the broker answered, and ends when content.

    `principal` names whom we log in as, `remedy` says what to correct when the broker refuses, `refused` is called then.
    """

    principal: str
    remedy: str
    steps: Generator[bytes, bytes, None] = field(repr=False)
    refused: Callable[[], None] = lambda: None


class PerLogin(Generic[T]):
    """One value for each set of credentials in this process, made when first asked for, by one thread."""

    def __init__(self, make: Callable[[Login], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._made: OrderedDict[Hashable, T] = OrderedDict()

    def of(self, login: Login) -> T:
        with self._lock:
            made = self._made.get(login.key)
            if made is None:
                made = self._made[login.key] = self._make(login)
                # Credentials that were replaced are asked for no more.
                while len(self._made) > _MOST_LOGINS:
                    self._made.popitem(last=False)
            else:
                self._made.move_to_end(login.key)
            return made


def login_of(settings: ClientSettings) -> Login:
    """The login that a cluster's properties ask for; ConfigError if they do not fit together."""
    properties = settings.security.given()
    mechanism = properties.get("sasl.mechanism", "").strip() or "GSSAPI"
    cluster = str(settings)
    where = _capital(cluster)
    if mechanism not in MODULES:
        raise ConfigError(
            f"{where}: sasl.mechanism={mechanism} is not known.",
            f"Use one of {', '.join(MODULES)}.",
        )
    text = properties.get(_JAAS, "")
    if not text.strip():
        raise ConfigError(
            f"{where}: security.protocol={settings.security.protocol}, but {_JAAS} is not set.",
            f"Set {_JAAS}={MODULES[mechanism][0]} required …; for this cluster. A JAAS file that Java is told of by "
            "-Djava.security.auth.login.config is not read.",
        )
    entry = parse_jaas(text, f"{where}: {_JAAS}")
    _check_module(where, mechanism, entry)
    _check_handlers(where, mechanism, properties)
    key = (settings.alias, settings.security)
    return Login(cluster, mechanism, entry.options, properties, key, settings.security.files)


def _check_module(where: str, mechanism: str, entry: JaasEntry) -> None:
    wanted = MODULES[mechanism]
    if entry.module in wanted:
        return
    known = any(entry.module in modules for modules in MODULES.values())
    # What is no login module may be a password in the wrong place.
    named = entry.module if known or entry.module.endswith("LoginModule") else "another class"
    raise ConfigError(
        f"{where}: {_JAAS} names {named}, which does not fit sasl.mechanism={mechanism}.",
        f"Name {wanted[0]} in {_JAAS}, or correct sasl.mechanism.",
    )


def _check_handlers(where: str, mechanism: str, properties: Mapping[str, str]) -> None:
    """Java classes in places where no class of ours can stand."""
    keys = ["sasl.client.callback.handler.class", "sasl.login.class"]
    if mechanism != "OAUTHBEARER":
        keys.append("sasl.login.callback.handler.class")
    for key in keys:
        named = properties.get(key, "").strip()
        if not named or named.startswith(f"{_KAFKA}.") or (mechanism, named) in _HANDLERS:
            continue
        raise ConfigError(
            f"{where}: {key} names the class {named}, which cannot be used with sasl.mechanism={mechanism}.",
            f"Remove {key}. What can be a Python class of your own is where tokens come from: "
            "sasl.login.callback.handler.class=package.module.Class with sasl.mechanism=OAUTHBEARER.",
        )


def _capital(cluster: str) -> str:
    return cluster[:1].upper() + cluster[1:]
