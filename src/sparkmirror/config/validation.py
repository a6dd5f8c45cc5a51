"""Rules between keys: a connector config as strings comes in, problems go out.

As in Connect's validation these look at what the user wrote, so `FALSE` is not `false` here.
"""

from __future__ import annotations

from collections.abc import Mapping

from sparkmirror.config.clients import client_properties
from sparkmirror.config.keys import Problem, java_trim
from sparkmirror.config.keys_mirror import (
    DEFAULT_ADMIN,
    DEFAULT_CONFIG_PROPERTY_FILTER,
    DEFAULT_GROUP_FILTER,
    DEFAULT_TOPIC_FILTER,
)

_EMIT_SYNCS = "emit.offset-syncs.enabled"
_EXACTLY_ONCE = "exactly.once.support"
_JAVA_CLASSES = {
    "topic.filter.class": (DEFAULT_TOPIC_FILTER, "use topics and topics.exclude"),
    "group.filter.class": (DEFAULT_GROUP_FILTER, "use groups and groups.exclude"),
    "config.property.filter.class": (
        DEFAULT_CONFIG_PROPERTY_FILTER,
        "use config.properties.exclude",
    ),
    "forwarding.admin.class": (DEFAULT_ADMIN, "topics are created on the target cluster itself"),
}


def source_problems(props: Mapping[str, str]) -> list[Problem]:
    """What is wrong between the keys of a source connector."""
    problems = []
    syncs_keys = sorted(k for k in props if k.startswith(("offset-syncs-", "offset-syncs.topic.")))
    if props.get(_EMIT_SYNCS) == "false" and syncs_keys:
        problems.append(
            Problem(
                _EMIT_SYNCS,
                f"{_EMIT_SYNCS} is false, so {', '.join(syncs_keys)} must not be set: no offset "
                "syncs are written.",
            )
        )
    level = isolation_level(props)
    if props.get(_EXACTLY_ONCE) == "required" and level != "read_committed":
        problems.append(
            Problem(
                _EXACTLY_ONCE,
                f"{_EXACTLY_ONCE} is required, but isolation.level of the source consumer is "
                f"{level}: set source.consumer.isolation.level to read_committed.",
            )
        )
    return problems


def checkpoint_problems(props: Mapping[str, str]) -> list[Problem]:
    """What is wrong between the keys of a checkpoint connector; a disabled one may be anything."""
    if props.get("enabled") == "false":
        return []
    return [
        Problem(key, f"{key} must not be false: the checkpoint connector has nothing to do then.")
        for key in ("emit.checkpoints.enabled", _EMIT_SYNCS)
        if props.get(key) == "false"
    ]


def java_class_problems(props: Mapping[str, str]) -> list[Problem]:
    """Java classes of the user that would change what is copied, and that cannot run here."""
    return [
        Problem(
            key,
            f"{key} is {props[key]}, a Java class, which cannot be loaded. Remove it; {instead}.",
        )
        for key, (default, instead) in _JAVA_CLASSES.items()
        if key in props and java_trim(props[key]) != default
    ]


def isolation_level(props: Mapping[str, str]) -> str:
    """How the source is read; committed data only, unless the user wants it otherwise."""
    consumer = client_properties(props, "source", "consumer")
    return java_trim(consumer.get("isolation.level", "read_committed"))
