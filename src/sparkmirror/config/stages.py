"""The steps that records pass: `transforms` and `predicates` of a config come in, their keys and
what is wrong between them go out.

Each alias brings keys of its own: its class, and what that class defines. An alias whose class is
not known brings its class only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from sparkmirror.config.config_values import Properties
from sparkmirror.config.keys import Importance, Key, KeyType, Problem, java_trim, split_list
from sparkmirror.config.keys_transforms import STAGE_KEYS
from sparkmirror.config.plugins import (
    PREDICATES,
    STRUCTURED_TRANSFORMATIONS,
    TRANSFORMATIONS,
    Plugin,
    PluginType,
    full_class_name,
    kind_problem,
)
from sparkmirror.config.validators import MOST_ALIASES, Validator
from sparkmirror.config.versions import VERSION, version_problem

_IMPORTANCES = tuple(Importance)


@dataclass(frozen=True, slots=True)
class _Family:
    """Transformations or predicates: what they are called in keys, groups and texts."""

    prefix: str
    group: str
    noun: str
    type: PluginType
    plugins: tuple[Plugin, ...]
    shared: tuple[Key, ...]


_FAMILIES = (
    _Family(
        "transforms",
        "Transforms",
        "Transformation",
        PluginType.TRANSFORMATION,
        TRANSFORMATIONS,
        STAGE_KEYS,
    ),
    _Family("predicates", "Predicates", "Predicate", PluginType.PREDICATE, PREDICATES, ()),
)


def stage_keys(props: Properties) -> tuple[Key, ...]:
    """The keys that the aliases in `transforms` and `predicates` bring."""
    return tuple(
        key
        for family in _FAMILIES
        for alias in _aliases(props, family.prefix)
        for key in _alias_keys(family, alias, props)
    )


def stage_problems(props: Properties) -> list[Problem]:
    """What is wrong with the classes of steps, and between steps and predicates."""
    predicates = frozenset(_aliases(props, "predicates"))
    return [
        problem
        for family in _FAMILIES
        for alias in _aliases(props, family.prefix)
        for problem in _alias_problems(family, f"{family.prefix}.{alias}", props, predicates)
    ]


def _aliases(props: Properties, key: str) -> tuple[str, ...]:
    """As many as there may be: each brings keys of its own into the answer."""
    return tuple(dict.fromkeys(split_list(props.get(key) or "")))[:MOST_ALIASES]


def _class_of(stage: str, props: Properties) -> str | None:
    return full_class_name(java_trim(props.get(f"{stage}.type") or ""))


def _plugin(family: _Family, class_name: str | None) -> Plugin | None:
    return next((p for p in family.plugins if p.class_name == class_name), None)


def _alias_keys(family: _Family, alias: str, props: Properties) -> Iterator[Key]:
    stage = f"{family.prefix}.{alias}"
    group = f"{family.group}: {alias}"
    plugin = _plugin(family, _class_of(stage, props))
    yield Key(
        name=f"{stage}.type",
        type=KeyType.CLASS,
        required=True,
        importance=Importance.HIGH,
        doc=f"Class of the {family.noun.lower()} {alias}.",
        group=group,
        order=0,
        width="LONG",
        display_name=f"{family.noun} type for {alias}",
        recommended=tuple(p.class_name for p in family.plugins),
    )
    yield Key(
        name=f"{stage}.plugin.version",
        type=KeyType.STRING,
        default=VERSION if plugin else None,
        importance=Importance.HIGH,
        doc=f"Version of the {family.noun.lower()} {alias}.",
        group=group,
        order=1,
        width="LONG",
        display_name=f"{family.noun} version for {alias}",
        recommended=(VERSION,) if plugin else (),
    )
    if plugin is not None and _version_problem(plugin, stage, props) is None:
        ordered = sorted((*family.shared, *plugin.keys), key=_rank)
        for order, key in enumerate(ordered, start=2):
            yield _embedded(key, f"{stage}.", group, order)


def _rank(key: Key) -> tuple[bool, int, str]:
    """The order in which `ConfigDef` lists keys: required ones first, then by importance and name."""
    return not key.required, _IMPORTANCES.index(key.importance), key.name


def _embedded(key: Key, prefix: str, group: str, order: int) -> Key:
    validator = _unprefixed(key.validator, prefix) if key.validator else None
    return replace(key, name=prefix + key.name, group=group, order=order, validator=validator)


def _unprefixed(validator: Validator, prefix: str) -> Validator:
    """The same validator, which speaks of the key as its class knows it."""

    def check(name: str, value: object) -> str | None:
        return validator(name.removeprefix(prefix), value)

    return check


def _alias_problems(
    family: _Family, stage: str, props: Properties, predicates: frozenset[str]
) -> Iterator[Problem]:
    negate, predicate, type_key = f"{stage}.negate", f"{stage}.predicate", f"{stage}.type"
    if family.shared and negate in props and predicate not in props:
        yield Problem(
            type_key,
            f"Config '{negate}' was provided but there is no config '{predicate}' defining a "
            "predicate to be negated.",
        )
    named = props.get(predicate) if family.shared else None
    if named is not None and java_trim(named) not in predicates:
        yield Problem(
            predicate,
            f"{predicate} is {named}, which predicates does not name. Add it to predicates, with "
            f"predicates.{named}.type.",
        )
    yield from _class_problems(family, stage, props)


def _class_problems(family: _Family, stage: str, props: Properties) -> Iterator[Problem]:
    type_key = f"{stage}.type"
    class_name = _class_of(stage, props)
    if class_name is None:
        return
    if family.shared and class_name in STRUCTURED_TRANSFORMATIONS:
        yield Problem(
            type_key,
            f"{type_key} is {class_name}, which needs records with fields, but records are copied "
            f"as bytes. Remove it, or use one of {_names(family)}.",
        )
    elif (problem := kind_problem(class_name, family.type)) is not None:
        yield Problem(type_key, problem)
    elif (plugin := _plugin(family, class_name)) is not None:
        problem = _version_problem(plugin, stage, props)
        if problem is not None:
            yield Problem(type_key, problem)
            yield Problem(f"{stage}.plugin.version", problem)


def _names(family: _Family) -> str:
    return ", ".join(plugin.simple_name for plugin in family.plugins)


def _version_problem(plugin: Plugin, stage: str, props: Properties) -> str | None:
    try:
        return version_problem(plugin.class_name, props.get(f"{stage}.plugin.version"))
    except ValueError as error:
        return str(error)
