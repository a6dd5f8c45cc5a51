"""Preflight of a connector config: its properties and the worker's settings come in, the answer of
`PUT /connector-plugins/{plugin}/config/validate` goes out.

The answer lists every key with its definition and value, as Connect does it: first what the
framework says, which the connector's own word on the same key replaces, then the overrides of
clients and the settings of converters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sparkmirror.config.clients import Kind
from sparkmirror.config.config_values import ConfigValue, Entry, Properties, evaluate
from sparkmirror.config.connector_rules import (
    QueryCheck,
    connector_problems,
    find_class,
    framework_problems,
)
from sparkmirror.config.converters import converter_entries, with_visibility
from sparkmirror.config.definitions import CONNECTOR_KEYS, SOURCE_CONNECTOR_KEYS
from sparkmirror.config.java_order import hash_order
from sparkmirror.config.keys import Key, Problem, java_trim
from sparkmirror.config.masking import masked
from sparkmirror.config.overrides import override_entries
from sparkmirror.config.plugins import CONNECTORS, Plugin, PluginType, find_plugin
from sparkmirror.config.providers import resolve_named
from sparkmirror.config.stages import stage_keys
from sparkmirror.config.validators import java_text
from sparkmirror.config.versions import VERSION, version_problem
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.errors import BadRequest, ConfigError, ConnectError
from sparkmirror.secret_names import HIDDEN

_CLASS = "connector.class"
_VERSION = "connector.plugin.version"
_NULL = "Null value can not be supplied as the configuration value."


def validate(
    props: Properties, worker: WorkerConfig, queries: QueryCheck | None = None
) -> dict[str, Any]:
    """The answer to a request to validate `props`. Without `queries` the query of a flow is not looked at.

    ConnectError (500, as Connect answers here) if `props` name no connector that exists.
    """
    try:
        return _validate(props, worker, queries)
    except BadRequest as error:
        raise ConnectError(error.message) from error


def require_valid(
    props: Properties, worker: WorkerConfig, queries: QueryCheck | None = None
) -> None:
    """BadRequest, with Connect's message, if `props` cannot be the config of a connector."""
    answer = _validate(props, worker, queries)
    count = answer["error_count"]
    if not count:
        return
    errors = [message for entry in answer["configs"] for message in entry["value"]["errors"]]
    raise BadRequest(
        "\n".join(
            (
                f"Connector configuration is invalid and contains the following {count} error(s):",
                *errors,
                "You can also find the above list of errors at the endpoint "
                "`/connector-plugins/{connectorType}/config/validate`",
            )
        )
    )


def require_plugin(plugin: str, props: Properties) -> None:
    """BadRequest if `props`, sent to the address of `plugin`, are for another class."""
    given = props.get(_CLASS)
    if given is not None and not _without_suffix(given).endswith(_without_suffix(plugin)):
        raise BadRequest(f"Included connector type {given} does not match request type {plugin}")


def connector_plugin(props: Properties, written: Properties | None = None) -> Plugin:
    """The connector that `props` name; BadRequest, which shows them as they were written, if they name none that exists."""
    name = props.get(_CLASS)
    if name is None:
        given = masked(props if written is None else written)
        shown = ", ".join(f"{key}={java_text(value)}" for key, value in given.items())
        raise BadRequest(f"Connector config {{{shown}}} contains no connector type")
    plugin = find_plugin(java_trim(name), PluginType.SOURCE)
    if plugin is None:
        known = ", ".join(connector.class_name for connector in CONNECTORS)
        raise BadRequest(
            "Failed to find any class that implements Connector and which name matches "
            f"{name}, available connectors are: {known}"
        )
    return plugin


def resolved(
    props: Properties, worker: WorkerConfig
) -> tuple[dict[str, str | None], list[Problem]]:
    """`props` with the references that the worker's config providers answer, and those they cannot."""
    found: dict[str, str | None] = {}
    problems = []
    for name, value in props.items():
        try:
            found[name] = value and resolve_named({name: value}, worker.properties)[name]
        except ConfigError as error:
            found[name] = value
            problems.append(Problem(name, str(error)))
    return found, problems


def _validate(
    given: Properties, worker: WorkerConfig, queries: QueryCheck | None
) -> dict[str, Any]:
    props, unresolved = resolved(given, worker)
    plugin = connector_plugin(props, given)
    wrong_version = _version_problem(plugin, props)
    if wrong_version is not None:
        return _with_references(_wrong_version(props, wrong_version), given, props)
    framework_keys = (*CONNECTOR_KEYS, *SOURCE_CONNECTOR_KEYS, *stage_keys(props))
    framework = _framework_values(framework_keys, props, worker)
    connector = with_visibility(evaluate(plugin.keys, props, find_class))
    open_keys = {problem.key for problem in unresolved}
    rules = connector_problems(plugin, props, worker, queries)
    connector = _with_problems(connector, [p for p in rules if p.key not in open_keys])
    connector = _with_nulls(connector, [n for n, v in connector.items() if not v.errors], props)
    values = _with_problems(framework | connector, unresolved)
    keys = {key.name: key for key in (*framework_keys, *plugin.keys) if not key.hidden}
    main = [Entry(None, values[name]) for name in _undefined(framework, values, keys)]
    main += [Entry(key, values[name]) for name, key in keys.items()]
    answer = _answer(props, main, [*_overrides(props, worker), *converter_entries(props)])
    return _with_references(answer, given, props)


def _framework_values(
    keys: Sequence[Key], props: Properties, worker: WorkerConfig
) -> dict[str, ConfigValue]:
    values = evaluate(keys, props, find_class)
    values = _with_problems(values, framework_problems(values, props, worker))
    return _with_nulls(values, props, props)


def _with_problems(
    values: dict[str, ConfigValue], problems: Iterable[Problem]
) -> dict[str, ConfigValue]:
    found = dict(values)
    for problem in problems:
        value = found.get(problem.key, ConfigValue(problem.key))
        found[problem.key] = value.with_errors(problem.message)
    return found


def _with_nulls(
    values: dict[str, ConfigValue], names: Iterable[str], props: Properties
) -> dict[str, ConfigValue]:
    nulls = [Problem(n, _NULL) for n in names if n in props and props[n] is None]
    return _with_problems(values, nulls)


def _undefined(
    framework: dict[str, ConfigValue], values: dict[str, ConfigValue], keys: dict[str, Key]
) -> list[str]:
    """Keys that have a problem but no definition: the framework's, then the connector's."""
    order = dict.fromkeys((*hash_order(framework), *values))
    return [name for name in order if name not in keys]


def _overrides(props: Properties, worker: WorkerConfig) -> list[Entry]:
    kinds: list[Kind] = ["producer"]
    # Positions in a topic of the connector's own are read and kept with clients of its own.
    own_topic = bool(java_trim(props.get("offsets.storage.topic") or ""))
    separate = not worker.standalone and (worker.exactly_once_enabled or own_topic)
    if separate:
        kinds.append("consumer")
    if separate or any(name.startswith("topic.creation.") for name in props):
        kinds.append("admin")
    return [e for kind in kinds for e in override_entries(kind, props, worker.override_policy)]


def _answer(props: Properties, main: Sequence[Entry], more: Sequence[Entry]) -> dict[str, Any]:
    entries = (*main, *more)
    groups = [e.key.group for e in entries if e.key is not None and e.key.group is not None]
    return {
        "name": props[_CLASS],
        # Connect counts errors in its own keys, and keys with errors among the others.
        "error_count": sum(len(e.value.errors) for e in main)
        + sum(bool(e.value.errors) for e in more),
        "groups": list(dict.fromkeys(groups)),
        "configs": [entry.json() for entry in entries],
    }


def _with_references(
    answer: dict[str, Any], given: Properties, props: Properties
) -> dict[str, Any]:
    """The answer with references where the user wrote them: what they stand for stays on the worker."""
    for entry in answer["configs"]:
        value = entry["value"]
        written, meant = given.get(value["name"]), props.get(value["name"])
        if written is None or not meant or written == meant:
            continue
        if value["value"] not in (None, HIDDEN):
            value["value"] = written
        value["errors"] = [message.replace(meant, written) for message in value["errors"]]
    return answer


def _version_problem(plugin: Plugin, props: Properties) -> str | None:
    try:
        return version_problem(plugin.class_name, props.get(_VERSION))
    except ValueError as error:
        raise BadRequest(str(error)) from error


def _wrong_version(props: Properties, message: str) -> dict[str, Any]:
    """Without the connector only the framework's word is known, and not all of that."""
    keys = [
        replace(key, default=VERSION, recommended=(VERSION,)) if key.name == _VERSION else key
        for key in CONNECTOR_KEYS
    ]
    values = with_visibility(evaluate(keys, props, find_class))
    values = _with_problems(values, [Problem(_CLASS, message), Problem(_VERSION, message)])
    return _answer(props, [Entry(key, values[key.name]) for key in keys], [])


def _without_suffix(name: str) -> str:
    return name.removesuffix("Connector") or name
