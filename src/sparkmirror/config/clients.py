"""How MirrorMaker builds its clients: a connector config comes in, client properties go out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from sparkmirror.config.keys_security import SECURITY_KEYS

Side = Literal["source", "target"]
Kind = Literal["producer", "consumer", "admin"]

_CLIENT_LEVEL = frozenset(key.name for key in SECURITY_KEYS) | {
    "bootstrap.servers",
    "security.protocol",
}
KINDS: tuple[Kind, ...] = ("producer", "consumer", "admin")


def is_client_level(name: str) -> bool:
    """Whether a key says how to reach a cluster, so that all clients of the cluster share it."""
    return name in _CLIENT_LEVEL


def with_prefix(properties: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The properties under `prefix`, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in properties.items()
        if name.startswith(prefix) and name != prefix
    }


def client_properties(props: Mapping[str, str], side: Side, kind: Kind) -> dict[str, str]:
    """Properties of the `kind` of client for the source or the target cluster.

    Later wins: how to reach the cluster (`source.cluster.*`), what all such clients share
    (`consumer.*`), what this one has (`source.consumer.*`). Consumers never commit and start at the
    earliest offset unless told otherwise.
    """
    cluster = with_prefix(props, f"{side}.cluster.")
    found = {name: value for name, value in cluster.items() if is_client_level(name)}
    found |= with_prefix(props, f"{kind}.")
    found |= with_prefix(props, f"{side}.{kind}.")
    if kind == "consumer":
        found["enable.auto.commit"] = "false"
        found.setdefault("auto.offset.reset", "earliest")
    return found


def client_id(
    props: Mapping[str, str],
    side: Side,
    kind: Kind,
    role: str = "",
    task: int | str | None = None,
) -> str:
    """The client's name in broker logs and quotas: `A->B|name-0|role`, after the user's own id.

    `task` is a task's index, "?" if it has none, or None for a client of the connector itself.
    """
    own = client_properties(props, side, kind).get("client.id")
    target = props.get("target.cluster.alias", "target")
    label = f"{props['source.cluster.alias']}->{target}|{props['name']}"
    if task is not None:
        label += f"-{task}"
    return "|".join(part for part in (own, label, role) if part)
