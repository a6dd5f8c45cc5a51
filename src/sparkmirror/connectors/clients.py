"""The clusters that a connector or task talks to: its config in, a client with MirrorMaker's names and properties out."""

from __future__ import annotations

from collections.abc import Mapping

from sparkmirror.config.clients import Kind, Side, client_id, client_properties, with_prefix
from sparkmirror.kafka.cluster import Cluster
from sparkmirror.kafka.settings import client_settings

_DEFAULT_TARGET = "target"


def cluster_for(
    props: Mapping[str, str], side: Side, kind: Kind, role: str, task: str | None = None
) -> Cluster:
    """A client in one of MirrorMaker's roles, e.g. `checkpoint-source-admin`."""
    found = client_properties(props, side, kind)
    found.pop("client.id", None)  # part of what is built here
    settings = client_settings(_alias(props, side), found, client_id(props, side, kind, role, task))
    return Cluster(settings)


def record_writer(props: Mapping[str, str], task: str) -> Cluster:
    """The client that writes a task's records to the target: what is overridden for Connect's own producer counts most."""
    found = client_properties(props, "target", "producer")
    found.pop("client.id", None)
    found |= with_prefix(props, "producer.override.")
    name = f"connector-producer-{props['name']}-{task}"
    return Cluster(client_settings(_alias(props, "target"), found, name))


def _alias(props: Mapping[str, str], side: Side) -> str:
    return props.get(f"{side}.cluster.alias", _DEFAULT_TARGET)
