"""The key tables of the three connectors, put together: no input, tuples of `Key` go out."""

from __future__ import annotations

from sparkmirror.config.keys import Key, KeyType, Problem, Values, check, parse
from sparkmirror.config.keys_connect import CONNECTOR_KEYS, SOURCE_CONNECTOR_KEYS
from sparkmirror.config.keys_mirror import (
    CHECKPOINT_ONLY_KEYS,
    CONFIG_PROVIDERS_KEY,
    HEARTBEAT_ONLY_KEYS,
    SHARED_KEYS,
    SOURCE_ONLY_KEYS,
)
from sparkmirror.config.keys_security import PROTOCOL_KEY, SECURITY_KEYS

__all__ = [
    "CHECKPOINT_KEYS",
    "CONNECTOR_KEYS",
    "HEARTBEAT_KEYS",
    "MIRROR_KEYS",
    "SECURITY_KEYS",
    "SOURCE_CONNECTOR_KEYS",
    "SOURCE_KEYS",
    "Key",
    "KeyType",
    "Problem",
    "Values",
    "check",
    "connector_key_names",
    "parse",
]

MIRROR_KEYS: tuple[Key, ...] = (
    *CONNECTOR_KEYS,
    *SHARED_KEYS,
    PROTOCOL_KEY,
    CONFIG_PROVIDERS_KEY,
    *SECURITY_KEYS,
)
SOURCE_KEYS: tuple[Key, ...] = (*MIRROR_KEYS, *SOURCE_ONLY_KEYS)
CHECKPOINT_KEYS: tuple[Key, ...] = (*MIRROR_KEYS, *CHECKPOINT_ONLY_KEYS)
HEARTBEAT_KEYS: tuple[Key, ...] = (*MIRROR_KEYS, *HEARTBEAT_ONLY_KEYS)


def connector_key_names() -> frozenset[str]:
    """Every name that at least one of the three connectors defines, former names included."""
    return frozenset(
        name
        for key in (*SOURCE_KEYS, *CHECKPOINT_ONLY_KEYS, *HEARTBEAT_ONLY_KEYS)
        for name in (key.name, *key.aliases)
    )
