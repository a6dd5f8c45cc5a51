"""Which client settings connectors may override: worker properties come in, a policy goes out; a
connector config comes in, entries of the validation answer go out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from sparkmirror.config.clients import Kind, with_prefix
from sparkmirror.config.config_values import ConfigValue, Entry, Properties, config_value
from sparkmirror.config.java_order import hash_order
from sparkmirror.config.keys import Key, java_trim, split_list
from sparkmirror.config.keys_clients import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS
from sparkmirror.errors import ConfigError
from sparkmirror.secret_names import HIDDEN, is_secret

POLICY_KEY = "connector.client.config.override.policy"
ALLOWLIST_KEY = "connector.client.config.override.allowlist"
_SUFFIX = "ConnectorClientConfigOverridePolicy"
_PACKAGE = "org.apache.kafka.connect.connector.policy."
_PRINCIPAL = frozenset({"sasl.jaas.config", "sasl.mechanism", "security.protocol"})
_TABLES: dict[Kind, tuple[Key, ...]] = {
    "producer": PRODUCER_KEYS,
    "consumer": CONSUMER_KEYS,
    "admin": ADMIN_KEYS,
}
# Connect gives overrides their type, and leaves it to the client to refuse a value.
_KEYS = {
    kind: {key.name: replace(key, validator=None) for key in table}
    for kind, table in _TABLES.items()
}
_NAMES = ("All", "None", "Principal", "Allowlist")


@dataclass(frozen=True, slots=True)
class OverridePolicy:
    """A policy by its name; `allowed` is None where everything is."""

    name: str
    allowed: frozenset[str] | None

    def problem(self, setting: str) -> str | None:
        """What is wrong with a connector that overrides `setting` of one of its clients."""
        if self.allowed is None or setting in self.allowed:
            return None
        return (
            f"The '{self.name}' policy does not allow '{setting}' to be overridden in the "
            "connector configuration."
        )


def find_policy(properties: Mapping[str, str]) -> OverridePolicy:
    """The worker's policy; ValueError if it names one that is not known."""
    given = java_trim(properties.get(POLICY_KEY, "All"))
    name = given.removeprefix(_PACKAGE).removesuffix(_SUFFIX)
    if name not in _NAMES:
        raise ValueError(f"Use one of {', '.join(_NAMES)}; Java classes cannot be loaded")
    allowed: dict[str, frozenset[str] | None] = {
        "All": None,
        "None": frozenset(),
        "Principal": _PRINCIPAL,
        "Allowlist": frozenset(split_list(properties.get(ALLOWLIST_KEY, ""))),
    }
    return OverridePolicy(name, allowed[name])


def require_allowed(props: Mapping[str, str], policy: OverridePolicy) -> None:
    """ConfigError if a config overrides what the worker's policy does not let it, whoever has written it."""
    for setting in with_prefix(props, "producer.override."):  # we have no other client of that kind
        problem = policy.problem(setting)
        if problem is not None:
            raise ConfigError(f"producer.override.{setting}: {problem}", f"See {POLICY_KEY}.")


def override_entries(kind: Kind, props: Properties, policy: OverridePolicy) -> list[Entry]:
    """The settings of the framework's client of a kind that a connector overrides."""
    prefix = f"{kind}.override."
    names = [n.removeprefix(prefix) for n in hash_order(props) if n.startswith(prefix)]
    return [_entry(name, prefix, kind, props, policy) for name in hash_order(names) if name]


def _entry(name: str, prefix: str, kind: Kind, props: Properties, policy: OverridePolicy) -> Entry:
    key = _KEYS[kind].get(name)
    text = props[prefix + name]
    if key is None:  # Java would show a password that a plugin of the user's reads
        value = ConfigValue(name, HIDDEN if text is not None and is_secret(name) else text)
    else:
        value = config_value(key, {name: text})
    problem = policy.problem(name)
    return Entry(key, value if problem is None else value.with_errors(problem), prefix)
