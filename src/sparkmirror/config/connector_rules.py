"""Rules of validation that no single key can say: a connector config and the worker's settings come
in, problems go out.

Rules of the framework are Connect's, in its words. Rules of a connector are MirrorMaker 2's and ours:
what would be refused when the connector starts is refused here already.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from sparkmirror.config.config_values import ConfigValue, Properties
from sparkmirror.config.converters import PARTS, converter_problems
from sparkmirror.config.keys import Problem, check, class_not_found, java_trim, parse, split_list
from sparkmirror.config.keys_mirror import CHECKPOINT_ONLY_KEYS, TARGET_PARTITIONS_KEY
from sparkmirror.config.keys_worker import RESTART_KEYS
from sparkmirror.config.plugins import Plugin, full_class_name
from sparkmirror.config.query import QUERY_KEYS, SQL, SQL_FILE, QueryConfig
from sparkmirror.config.source import source_config_problems
from sparkmirror.config.stages import stage_problems
from sparkmirror.config.timers import zero_problem
from sparkmirror.config.validation import (
    checkpoint_problems,
    isolation_level,
    java_class_problems,
)
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.config.worker_clients import login_problem
from sparkmirror.errors import ConfigError
from sparkmirror.policy.filters import compile_java_patterns
from sparkmirror.policy.naming import load_policy

_EXACTLY_ONCE = "exactly.once.support"
_BOUNDARY = "transaction.boundary"
_POLICY = "replication.policy.class"
_PATTERNS = {
    "MirrorSourceConnector": ("topics", "topics.exclude", "config.properties.exclude"),
    "MirrorCheckpointConnector": ("groups", "groups.exclude", "topics", "topics.exclude"),
}
_REFRESH = "refresh.groups"
_REFRESH_KEYS = tuple(key for key in CHECKPOINT_ONLY_KEYS if key.name.startswith(_REFRESH))
_CONVERTERS = tuple(f"{part}.converter" for part in PARTS)
_QUERY_KEYS = frozenset(key.name for key in QUERY_KEYS)

_CAUSE = re.compile(r"\[[A-Z_.0-9]+\]")
_PLACE = re.compile(r"\(line \d+, pos \d+\)")

QueryCheck = Callable[[QueryConfig], Iterable[Problem]]
"""What Spark says of a query, which nobody here can ask; problems with the query itself are on `transform.sql`."""


def find_class(key: str, text: str) -> str:
    """The full name of the class that `key` names; ValueError if a class that we need is unknown.

    Classes that only Java would use (login modules, callback handlers) are taken as they are.
    """
    is_stage = key.startswith(("transforms.", "predicates.")) and key.endswith(".type")
    if key not in _CONVERTERS and not is_stage:
        return text
    name = full_class_name(text)
    if name is None:
        raise ValueError(class_not_found(text))
    return name


def framework_problems(
    values: Mapping[str, ConfigValue], props: Properties, worker: WorkerConfig
) -> list[Problem]:
    """What the framework says: delivery, transactions, steps."""
    problems = stage_problems(props)
    if not worker.standalone:
        problems += _delivery_problems(values, props, worker)
    return problems


def connector_problems(
    plugin: Plugin, props: Properties, worker: WorkerConfig, queries: QueryCheck | None = None
) -> list[Problem]:
    """What the connector says, and what this program cannot do; `queries` is asked only if there is one that can be read."""
    # What may not be named is not looked at: that would be to import it, or to read it.
    refused = list(worker.permits.problems(props))
    closed = {problem.key for problem in refused}
    texts = {name: v for name, v in props.items() if v is not None and name not in closed}
    rules = {
        "MirrorSourceConnector": source_config_problems,
        "MirrorCheckpointConnector": _checkpoint_rules,
    }
    rule = rules.get(plugin.simple_name, java_class_problems)
    converters = {
        "key": worker.key_converter,
        "value": worker.value_converter,
        "header": worker.header_converter,
    }
    login = login_problem(worker, texts) if rule is source_config_problems else None
    found = [
        *refused,
        *([] if login is None else [login]),
        *rule(texts),
        *_policy_problems(texts),
        *_pattern_problems(_PATTERNS.get(plugin.simple_name, ()), texts),
        *converter_problems(props, converters),
        *check([key for key in RESTART_KEYS if key.name in texts], texts),
    ]
    if queries is not None and rule is source_config_problems:
        found += _query_problems(texts, found, queries)
    return found


def _query_problems(
    props: Mapping[str, str], known: Iterable[Problem], queries: QueryCheck
) -> list[Problem]:
    if any(problem.key in _QUERY_KEYS for problem in known):
        return []  # it would be another query than the one that is meant
    query = QueryConfig.parse(props)
    if query is None:
        return []
    file = "" if (props.get(SQL) or "").strip() else java_trim(props.get(SQL_FILE) or "")
    return [_in_file(problem, file) if file else problem for problem in queries(query)]


def _in_file(problem: Problem, file: str) -> Problem:
    """What Spark says of a query in a file, without the text of the file that it quotes."""
    if problem.key != SQL:
        return problem
    cause = _CAUSE.match(problem.message)
    if cause is None:  # our own words
        return Problem(SQL_FILE, problem.message)
    place = _PLACE.search(problem.message)
    at = "" if place is None else f" {place[0]}"
    return Problem(SQL_FILE, f"Spark refuses the query in {file}: {cause[0]}{at}.")


def _checkpoint_rules(props: Mapping[str, str]) -> list[Problem]:
    problems = [
        *checkpoint_problems(props),
        *java_class_problems(props),
        *check((TARGET_PARTITIONS_KEY,), props),  # not among the keys that validation lists
    ]
    if not check(_REFRESH_KEYS, props):
        zero = zero_problem(parse(_REFRESH_KEYS, props), _REFRESH)
        problems += [] if zero is None else [zero]
    return problems


def _delivery_problems(
    values: Mapping[str, ConfigValue], props: Properties, worker: WorkerConfig
) -> Iterator[Problem]:
    if _word(values[_EXACTLY_ONCE]) == "required":
        if not worker.exactly_once_enabled:
            yield Problem(
                _EXACTLY_ONCE, "This worker does not have exactly-once source support enabled."
            )
        unsupported = _exactly_once_problem(props)
        if unsupported:
            yield Problem(_EXACTLY_ONCE, unsupported)
    if _word(values[_BOUNDARY]) == "connector":
        yield Problem(
            _BOUNDARY,
            "The connector does not support connector-defined transaction boundaries with the "
            "given configuration. Please reconfigure it to use a different transaction boundary "
            "definition.",
        )


def _exactly_once_problem(props: Properties) -> str:
    """MirrorMaker's source connector knows whether it can; the other two have never been asked."""
    name = full_class_name(java_trim(props.get("connector.class") or "")) or ""
    if not name.endswith("SourceConnector"):
        return (
            "The connector does not say whether it supports exactly-once delivery. Set "
            f'{_EXACTLY_ONCE} to "requested": what it writes may be repeated without harm.'
        )
    texts = {key: value for key, value in props.items() if value is not None}
    if isolation_level(texts) == "read_committed":
        return ""
    return "The connector does not support exactly-once semantics with the provided configuration."


def _word(value: ConfigValue) -> str:
    return "" if value.errors else (value.value or "").lower()


def _policy_problems(props: Mapping[str, str]) -> list[Problem]:
    given = props.get(_POLICY)
    if given is None or not java_trim(given):
        return []
    try:
        load_policy(java_trim(given), props)
    except ConfigError as error:
        return [Problem(_POLICY, str(error))]
    return []


def _pattern_problems(keys: Iterable[str], props: Mapping[str, str]) -> Iterator[Problem]:
    for key in keys:
        try:
            compile_java_patterns([p for p in split_list(props.get(key, "")) if p], key)
        except ConfigError as error:
            yield Problem(key, str(error))
