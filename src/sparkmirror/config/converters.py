"""Converters of a connector: its config and the worker's converters come in, entries of the
validation answer and problems go out.

Records are copied as bytes, which is what ByteArrayConverter means. A key or value converter that
would write them in another form is refused, since the user expects something else than a copy.
Connect's default for headers, SimpleHeaderConverter, counts as bytes here: users set it by not
setting anything, and want their headers as they are.
"""

from __future__ import annotations

from sparkmirror.config.config_values import ConfigValue, Entry, Properties, config_value
from sparkmirror.config.java_order import hash_order
from sparkmirror.config.keys import Problem, java_trim
from sparkmirror.config.plugins import (
    BYTE_ARRAY_CONVERTER,
    SIMPLE_HEADER_CONVERTER,
    PluginType,
    find_plugin,
    full_class_name,
    kind_problem,
)
from sparkmirror.config.versions import version_problem

PARTS = ("header", "key", "value")
"""In the order in which Connect validates them."""

_COPYING = {
    "header": (BYTE_ARRAY_CONVERTER, SIMPLE_HEADER_CONVERTER),
    "key": (BYTE_ARRAY_CONVERTER,),
    "value": (BYTE_ARRAY_CONVERTER,),
}


def converter_type(part: str) -> PluginType:
    return PluginType.HEADER_CONVERTER if part == "header" else PluginType.CONVERTER


def converter_entries(props: Properties) -> list[Entry]:
    """The settings of the converters that the connector names itself."""
    return [entry for part in PARTS for entry in _entries(part, props)]


def converter_problems(props: Properties, worker: dict[str, str]) -> list[Problem]:
    """Converters that are none, and such as would not copy. `worker` has the worker's, by part."""
    found = (_problem(part, props, worker[part]) for part in PARTS)
    return [problem for problem in found if problem is not None]


def _problem(part: str, props: Properties, worker: str) -> Problem | None:
    key = f"{part}.converter"
    own = java_trim(props.get(key) or "")
    effective = own or java_trim(worker)
    name = full_class_name(effective)
    if own and name is None:
        return None  # reported as a class that could not be found
    if own and name is not None and (wrong := kind_problem(name, converter_type(part))):
        return Problem(key, wrong)
    if (name or effective) in _COPYING[part]:
        return None
    origin = "" if own else " (the worker's setting)"
    return Problem(
        key,
        f"{key} is {name or effective}{origin}, which would write {part}s in another form than the "
        f"source has them. Set {key} to {BYTE_ARRAY_CONVERTER} in the connector's config.",
    )


def _entries(part: str, props: Properties) -> list[Entry]:
    prefix = f"{part}.converter."
    plugin = find_plugin(java_trim(props.get(prefix[:-1]) or ""), converter_type(part))
    if plugin is None or not _version_fits(plugin.class_name, props.get(f"{prefix}plugin.version")):
        return []
    own = {n.removeprefix(prefix): v for n, v in props.items() if n.startswith(prefix)}
    own.setdefault("converter.type", part)
    keys = {key.name: key for key in plugin.keys}
    return [Entry(keys[n], config_value(keys[n], own), prefix) for n in hash_order(keys)]


def _version_fits(class_name: str, wanted: str | None) -> bool:
    try:
        return version_problem(class_name, wanted) is None
    except ValueError:
        return False


def with_visibility(values: dict[str, ConfigValue]) -> dict[str, ConfigValue]:
    """The version of a converter is shown only where a converter is set."""
    shown = dict(values)
    for part in PARTS:
        name = f"{part}.converter.plugin.version"
        if name in shown and shown[f"{part}.converter"].value is None:
            shown[name] = _hidden(shown[name])
    return shown


def _hidden(value: ConfigValue) -> ConfigValue:
    return ConfigValue(value.name, value.value, value.errors, value.recommended, visible=False)
