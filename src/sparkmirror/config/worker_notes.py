"""Old and unknown keys of worker properties: properties come in, renamed ones and notes go out.

None of these stops a worker: each is said once, so that nobody wonders why a setting does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkmirror.config.clients import KINDS
from sparkmirror.config.flow_keys import nearest
from sparkmirror.config.keys_clients import ADMIN_KEYS, CONSUMER_KEYS, PRODUCER_KEYS
from sparkmirror.config.keys_worker import DISTRIBUTED_KEYS, STANDALONE_KEYS
from sparkmirror.config.rate_limits import RATE_LIMITS

_OLD_LISTENER = ("rest.host.name", "rest.port")
_INTERNAL_CONVERTERS = ("internal.key.converter", "internal.value.converter")
_FAMILIES = (
    *(f"{kind}." for kind in KINDS),
    "ssl.",
    "sasl.",
    "listeners.https.",
    "admin.listeners.https.",
    "config.providers.",
    "config.storage.",
    "offset.storage.",
    "status.storage.",
    "key.converter.",
    "value.converter.",
    "header.converter.",
    "topic.creation.",
    "metrics.",
    "spark.",
    "mirror.",
)
_IGNORED = {
    "config.storage.partitions": "the config topic has one partition.",
    **{
        f"{storage}.storage.cleanup.policy": "the worker's topics are compacted."
        for storage in ("config", "offset", "status")
    },
    "auto.include.jmx.reporter": "Kafka 4.0 has removed it.",
}
_KNOWN = frozenset(
    key.name
    for keys in (DISTRIBUTED_KEYS, STANDALONE_KEYS, PRODUCER_KEYS, CONSUMER_KEYS, ADMIN_KEYS)
    for key in keys
)
_WORKER_NAMES = sorted({key.name for key in (*DISTRIBUTED_KEYS, *STANDALONE_KEYS)})


def modernize(properties: Mapping[str, str]) -> dict[str, str]:
    """`properties` with old keys under their new names, and without those that do nothing."""
    kept = {name: value for name, value in properties.items() if not _is_old(name)}
    if "listeners" not in kept and any(name in properties for name in _OLD_LISTENER):
        kept["listeners"] = _old_listener(properties)
    return kept


def notes(properties: Mapping[str, str], standalone: bool) -> list[str]:
    """One line for each key that is old, ignored or unknown."""
    ignored = dict(_IGNORED)
    if not standalone:
        ignored["offset.storage.file.filename"] = "positions are kept in offset.storage.topic."
    lines = []
    for name in properties:
        if name in ignored:
            lines.append(f"{name} is ignored: {ignored[name]}")
        elif name.startswith(RATE_LIMITS):
            lines.append(f"{name} is ignored: it counts in the config of a source connector.")
        elif _is_old(name):
            lines.append(_old(name, properties))
        elif name not in _KNOWN and not name.startswith(_FAMILIES):
            lines.append(f"{name} is not a setting of a worker.{nearest(name, _WORKER_NAMES)}")
    return lines


def _is_old(name: str) -> bool:
    return name in _OLD_LISTENER or any(
        name == old or name.startswith(f"{old}.") for old in _INTERNAL_CONVERTERS
    )


def _old(name: str, properties: Mapping[str, str]) -> str:
    if name not in _OLD_LISTENER:
        return f"{name} is an old key and has no effect: internal data is JSON without schemas."
    if "listeners" in properties:
        return f"{name} is an old key and has no effect, because listeners is set."
    return f"{name} is an old key: read as listeners={_old_listener(properties)}."


def _old_listener(properties: Mapping[str, str]) -> str:
    host = properties.get("rest.host.name", "").strip()
    port = properties.get("rest.port", "").strip() or "8083"
    return f"http://{host}:{port}"
