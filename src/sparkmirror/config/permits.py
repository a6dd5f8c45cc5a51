"""What a connector's config may name: the worker's own settings come in; what a config names beyond them goes out, as problems.

Who can write the worker's file is trusted with everything. Who can send a config, by REST or into the config topic, may run
MirrorMaker's connectors with what is built in, and nothing else: no module, no file with a query and no address for tokens that
the worker's file does not list, or that no config in a file of its owner has.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Self

from sparkmirror.config.keys import (
    Importance,
    Key,
    KeyType,
    Problem,
    java_trim,
    plain_key,
    split_list,
)
from sparkmirror.config.query import FUNCTIONS, SQL_FILE
from sparkmirror.config.validators import Items
from sparkmirror.errors import ConfigError, QueryRefused
from sparkmirror.java_options import VARIABLES, system_property
from sparkmirror.policy.naming import KNOWN_POLICIES

FUNCTIONS_ALLOWED = "transform.functions.allowed"
MODULES_ALLOWED = "plugin.modules.allowed"
FILES_ALLOWED = "transform.sql.file.allowed.paths"
URLS_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
LOGINS_ALLOWED = "client.login.allowed.servers"
_POLICY = "replication.policy.class"
_SERVERS = "producer.override.bootstrap.servers"
_HANDLER = "callback.handler.class"
_TOKEN_URLS = ("sasl.oauthbearer.token.endpoint.url", "sasl.oauthbearer.jwks.endpoint.url")
_BEARER = "org.apache.kafka.common.security.oauthbearer"
KNOWN_HANDLERS = frozenset(
    {
        f"{_BEARER}.OAuthBearerLoginCallbackHandler",
        f"{_BEARER}.secured.OAuthBearerLoginCallbackHandler",
        f"{_BEARER}.internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler",
        "software.amazon.msk.auth.iam.IAMOAuthBearerLoginCallbackHandler",
        "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
    }
)
"""Java classes that we have ourselves."""


def _list(name: str, doc: str) -> Key:
    return plain_key(name, KeyType.LIST, "", Importance.LOW, f"Ours. {doc}", Items())


PERMIT_KEYS: tuple[Key, ...] = (
    _list(
        FUNCTIONS_ALLOWED,
        "Modules whose functions queries of connectors may call (transform.functions): package, package.module, or "
        "package.module:name each. Empty: none.",
    ),
    _list(
        MODULES_ALLOWED,
        "Modules with Python classes that configs of connectors may name (replication.policy.class, *.callback.handler.class): "
        "package, or package.module each. Empty: none.",
    ),
    _list(
        FILES_ALLOWED,
        "Directories below which files with queries may lie (transform.sql.file of connectors). Empty: none.",
    ),
    _list(
        URLS_ALLOWED,
        "Addresses that configs of connectors may have tokens from (sasl.oauthbearer.token.endpoint.url), as the Java option of "
        "this name in KAFKA_OPTS lists them. Empty: none.",
    ),
    _list(
        LOGINS_ALLOWED,
        "Servers (host:port) beside those of its own cluster to which the worker logs in with what stands under producer. in its "
        "file, where a connector's config names them (producer.override.bootstrap.servers).",
    ),
)


class Kind(StrEnum):
    FUNCTION = "function"
    MODULE = "class"
    FILE = "file"
    URL = "address"
    SERVER = "server"


class Named(NamedTuple):
    """Something that a config names."""

    kind: Kind
    key: str
    name: str


@dataclass(frozen=True, slots=True)
class Permits:
    """What configs of connectors may name. `trusted`: what those that come from files of the worker's owner do."""

    functions: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    roots: tuple[Path, ...] = ()
    urls: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()
    trusted: frozenset[tuple[Kind, str]] = frozenset()
    references: frozenset[str] | None = None
    """The references to config providers that stored configs may have; None: any to those that the worker's file names."""

    @classmethod
    def parse(
        cls, properties: Mapping[str, str], environment: Mapping[str, str] | None = None
    ) -> Self:
        """Those in a worker's properties; the environment may list addresses as it does for a Java worker."""
        option = system_property(os.environ if environment is None else environment, URLS_ALLOWED)
        urls = [*_items(properties.get(URLS_ALLOWED)), *_items(option)]
        return cls(
            functions=_items(properties.get(FUNCTIONS_ALLOWED)),
            modules=_items(properties.get(MODULES_ALLOWED)),
            roots=tuple(Path(item).resolve() for item in _items(properties.get(FILES_ALLOWED))),
            urls=frozenset(urls),
            servers=frozenset(_items(properties.get(LOGINS_ALLOWED))),
        )

    def trusting(self, configs: Iterable[Mapping[str, str | None]]) -> Self:
        """These, and all that configs in files of the worker's owner name."""
        found = {(each.kind, each.name) for props in configs for each in _named_in(props)}
        return replace(self, trusted=self.trusted | found)

    def problems(self, props: Mapping[str, str | None]) -> Iterator[Problem]:
        """What a config names and may not, each with the key of the worker's file that would list it."""
        for each in _named_in(props):
            if each.kind is not Kind.SERVER and not self._allows(each.kind, each.name):
                yield Problem(each.key, _refusal(each))

    def require(self, props: Mapping[str, str | None]) -> None:
        """ConfigError if a config names what it may not: before anything of that is imported or read."""
        refused = next(self.problems(props), None)
        if refused is not None:
            raise ConfigError(refused.message)

    def require_function(self, name: str) -> None:
        """QueryRefused for a function that queries may not call, wherever its name comes from."""
        if not self._allows(Kind.FUNCTION, name):
            raise QueryRefused(_refusal(Named(Kind.FUNCTION, FUNCTIONS, name)))

    def _is_below_roots(self, name: str) -> bool:
        try:
            path = Path(name).resolve()
        except (
            ValueError,
            OSError,
        ):  # no path at all: it has a NUL in it, or goes round in circles
            return False
        return any(path.is_relative_to(root) for root in self.roots)

    def may_get_login(self, server: str) -> bool:
        """Whether the worker's login may be sent to a server that is none of its own cluster."""
        return self._allows(Kind.SERVER, server)

    def _allows(self, kind: Kind, name: str) -> bool:
        if (kind, name) in self.trusted:
            return True
        match kind:
            case Kind.FUNCTION:
                return name in self.functions or _is_below(name.partition(":")[0], self.functions)
            case Kind.MODULE:
                return (
                    name in KNOWN_POLICIES
                    or name in KNOWN_HANDLERS
                    or _is_below(name, self.modules)
                )
            case Kind.FILE:
                return self._is_below_roots(name)
            case Kind.URL:
                return name in self.urls
            case Kind.SERVER:
                return name in self.servers


def _named_in(props: Mapping[str, str | None]) -> Iterator[Named]:
    for key, given in props.items():
        value = java_trim(given or "")
        if not value:
            continue
        if key == FUNCTIONS:
            yield from (Named(Kind.FUNCTION, key, name) for name in _items(value))
        elif key == SQL_FILE:
            yield Named(Kind.FILE, key, value)
        elif key == _POLICY or key.endswith(_HANDLER):
            yield Named(Kind.MODULE, key, value)
        elif key.endswith(_TOKEN_URLS):
            yield Named(Kind.URL, key, value)
        elif key == _SERVERS:
            yield from (Named(Kind.SERVER, key, name) for name in _items(value))


_LISTED_IN = {
    Kind.FUNCTION: f"module in {FUNCTIONS_ALLOWED} of the worker's file",
    Kind.MODULE: f"module in {MODULES_ALLOWED} of the worker's file",
    Kind.FILE: f"directory in {FILES_ALLOWED} of the worker's file",
    Kind.SERVER: f"server in {LOGINS_ALLOWED} of the worker's file",
    Kind.URL: f"address in {URLS_ALLOWED} of the worker's file, or as -D{URLS_ALLOWED}=… in {VARIABLES[0]}",
}


def _refusal(each: Named) -> str:
    return (
        f"{each.key} names {each.name}, which configs of connectors may not name here. Who owns the worker may list the "
        f"{_LISTED_IN[each.kind]}."
    )


def _is_below(name: str, prefixes: Iterable[str]) -> bool:
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def _items(text: str | None) -> tuple[str, ...]:
    return tuple(item for item in split_list(text or "") if item)
