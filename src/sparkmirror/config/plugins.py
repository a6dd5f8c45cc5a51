"""The plugins of Connect that this program knows: a class name comes in, a plugin with its keys goes out.

Connectors, transformations and predicates are run here, whatever Java class name is given. Of the
converters only ByteArrayConverter is: the others are known because worker files name them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sparkmirror.config.config_values import definition_json
from sparkmirror.config.definitions import (
    CHECKPOINT_KEYS,
    HEARTBEAT_KEYS,
    SOURCE_CONNECTOR_KEYS,
    SOURCE_KEYS,
)
from sparkmirror.config.keys import Key
from sparkmirror.config.keys_converters import (
    CONVERTER_KEYS,
    JSON_CONVERTER_KEYS,
    STRING_CONVERTER_KEYS,
)
from sparkmirror.config.keys_transforms import (
    DROP_HEADERS_KEYS,
    HAS_HEADER_KEY_KEYS,
    INSERT_HEADER_KEYS,
    REGEX_ROUTER_KEYS,
    TIMESTAMP_ROUTER_KEYS,
    TOPIC_NAME_MATCHES_KEYS,
)
from sparkmirror.config.versions import VERSION, version_problem
from sparkmirror.errors import BadRequest, NotFound

_CONNECT = "org.apache.kafka.connect"
BYTE_ARRAY_CONVERTER = f"{_CONNECT}.converters.ByteArrayConverter"
SIMPLE_HEADER_CONVERTER = f"{_CONNECT}.storage.SimpleHeaderConverter"


class PluginType(StrEnum):
    """The types of plugins, in the order in which REST lists them."""

    SOURCE = "source"
    TRANSFORMATION = "transformation"
    PREDICATE = "predicate"
    CONVERTER = "converter"
    HEADER_CONVERTER = "header_converter"


_SUFFIXES = {
    PluginType.SOURCE: "Connector",
    PluginType.TRANSFORMATION: "Transformation",
    PluginType.PREDICATE: "Predicate",
    PluginType.CONVERTER: "Converter",
    PluginType.HEADER_CONVERTER: "HeaderConverter",
}
"""What Java calls the interface of a type, and users may leave out of a class name."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """A class by its full Java name, and the keys it defines itself."""

    class_name: str
    type: PluginType
    keys: tuple[Key, ...] = ()

    @property
    def simple_name(self) -> str:
        return self.class_name.rpartition(".")[2]

    @property
    def aliases(self) -> frozenset[str]:
        """The names by which users may call it: in full, without package, without its suffix."""
        short = self.simple_name.removesuffix(_SUFFIXES[self.type]) or self.simple_name
        return frozenset({self.class_name, self.simple_name, short})


_NUMBERS = ("Boolean", "ByteArray", "Double", "Float", "Integer", "Long", "Short")
_CONVERTERS = (
    *((f"{_CONNECT}.converters.{name}Converter", CONVERTER_KEYS) for name in _NUMBERS),
    (f"{_CONNECT}.json.JsonConverter", JSON_CONVERTER_KEYS),
    (f"{_CONNECT}.storage.StringConverter", STRING_CONVERTER_KEYS),
)
_HEADER_CONVERTERS = sorted((*_CONVERTERS, (SIMPLE_HEADER_CONVERTER, ())))


def _plugins(
    plugin_type: PluginType, package: str, keys: dict[str, tuple[Key, ...]]
) -> tuple[Plugin, ...]:
    return tuple(Plugin(f"{package}.{name}", plugin_type, keys[name]) for name in sorted(keys))


CONNECTORS: tuple[Plugin, ...] = _plugins(
    PluginType.SOURCE,
    f"{_CONNECT}.mirror",
    {
        "MirrorCheckpointConnector": CHECKPOINT_KEYS,
        "MirrorHeartbeatConnector": HEARTBEAT_KEYS,
        "MirrorSourceConnector": SOURCE_KEYS,
    },
)
TRANSFORMATIONS: tuple[Plugin, ...] = _plugins(
    PluginType.TRANSFORMATION,
    f"{_CONNECT}.transforms",
    {
        "DropHeaders": DROP_HEADERS_KEYS,
        "Filter": (),
        "InsertHeader": INSERT_HEADER_KEYS,
        "RegexRouter": REGEX_ROUTER_KEYS,
        "TimestampRouter": TIMESTAMP_ROUTER_KEYS,
    },
)
PREDICATES: tuple[Plugin, ...] = _plugins(
    PluginType.PREDICATE,
    f"{_CONNECT}.transforms.predicates",
    {
        "HasHeaderKey": HAS_HEADER_KEY_KEYS,
        "RecordIsTombstone": (),
        "TopicNameMatches": TOPIC_NAME_MATCHES_KEYS,
    },
)
PLUGINS: tuple[Plugin, ...] = (
    *CONNECTORS,
    *TRANSFORMATIONS,
    *PREDICATES,
    *(Plugin(name, PluginType.CONVERTER, keys) for name, keys in _CONVERTERS),
    *(Plugin(name, PluginType.HEADER_CONVERTER, keys) for name, keys in _HEADER_CONVERTERS),
)

STRUCTURED_TRANSFORMATIONS: frozenset[str] = frozenset(
    f"{_CONNECT}.transforms.{name}{part}"
    for name in (
        "Cast",
        "ExtractField",
        "Flatten",
        "HeaderFrom",
        "HoistField",
        "InsertField",
        "MaskField",
        "ReplaceField",
        "SetSchemaMetadata",
        "TimestampConverter",
    )
    for part in ("$Key", "$Value")
) | {f"{_CONNECT}.transforms.ValueToKey"}
"""Transformations of Connect that need records with fields."""

# Classes of Connect that exist but are none of the plugins above.
_ABSTRACT = {
    **{
        name.partition("$")[0]: "Did you mean "
        + ", ".join(f"{name.partition('$')[0]}{part}" for part in ("$Key", "$Value"))
        + "?"
        for name in STRUCTURED_TRANSFORMATIONS
        if "$" in name
    },
    f"{_CONNECT}.storage.Converter": "",
    f"{_CONNECT}.storage.HeaderConverter": "",
    f"{_CONNECT}.converters.NumberConverter": "",
    f"{_CONNECT}.transforms.Transformation": "",
    f"{_CONNECT}.transforms.predicates.Predicate": "",
}


def find_plugin(name: str, plugin_type: PluginType | None = None) -> Plugin | None:
    """The plugin of that name, in full or short; of that type only, if one is given."""
    return next((p for p in PLUGINS if plugin_type in (None, p.type) and name in p.aliases), None)


def full_class_name(name: str) -> str | None:
    """The full name of a class of Connect that is known by that name; None if there is none."""
    plugin = find_plugin(name)
    if plugin is not None:
        return plugin.class_name
    return name if name in STRUCTURED_TRANSFORMATIONS or name in _ABSTRACT else None


def kind_problem(class_name: str, plugin_type: PluginType) -> str | None:
    """What is wrong with a class that exists but is no plugin of that type."""
    if class_name in _ABSTRACT:
        hint = _ABSTRACT[class_name]
        return f"This class is abstract and cannot be created. {hint}".rstrip()
    if find_plugin(class_name, plugin_type) is not None:
        return None
    return f"Class class {class_name} does not implement the {_SUFFIXES[plugin_type]} interface"


def list_plugins(connectors_only: bool = True) -> list[dict[str, str]]:
    """What `GET /connector-plugins` answers."""
    return [
        {"class": plugin.class_name, "type": str(plugin.type), "version": VERSION}
        for plugin in PLUGINS
        if plugin.type is PluginType.SOURCE or not connectors_only
    ]


def plugin_definitions(name: str, version: str | None = None) -> list[dict[str, Any]]:
    """What `GET /connector-plugins/{name}/config` answers: the plugin's keys, then the framework's.

    NotFound if there is no such plugin, BadRequest if there is none of that version.
    """
    plugin = find_plugin(name)
    if plugin is None:
        raise NotFound(f"Unknown plugin {name}.")
    try:
        problem = version_problem(plugin.class_name, version)
    except ValueError as error:
        raise BadRequest(f"Invalid version specification: {version}") from error
    if problem is not None:
        raise BadRequest(problem)
    framework = SOURCE_CONNECTOR_KEYS if plugin.type is PluginType.SOURCE else ()
    return [definition_json(key) for key in (*plugin.keys, *framework) if not key.hidden]
