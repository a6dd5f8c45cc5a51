"""The query of a flow before it runs: its keys and the topics of the flow in; what has no effect or leads in a circle out.

What Spark says of the query itself is not asked here: that takes a Spark session, which `preview` and a worker have.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder

from sparkmirror.config.keys import split_list
from sparkmirror.config.query import FUNCTIONS, QUERY_KEYS, SQL, SQL_FILE, TOPICS
from sparkmirror.policy.filters import compile_java_patterns
from sparkmirror.preflight.findings import Finding, error, warning
from sparkmirror.preflight.naming import Copying, did_you_mean, way_back

_CHECK = "query"
_DEAD_LETTERS = "errors.deadletterqueue."
_DEAD_TOPIC = f"{_DEAD_LETTERS}topic.name"
_TOLERANCE = "errors.tolerance"
_EVERYTHING = ".*"
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


# -- keys -----------------------------------------------------------------------------------------


def query_findings(props: Mapping[str, str]) -> list[Finding]:
    """Of the config of a source connector, references resolved."""
    given = [key.name for key in QUERY_KEYS if props.get(key.name, "").strip()]
    own = [name for name in given if not name.startswith(_DEAD_LETTERS)]
    has_query = SQL in given or SQL_FILE in given
    found = list(_dead_letter_keys(props, given, has_query))
    if own and not has_query:
        text = f"{', '.join(own)} {_have(own)} no effect without {SQL}."
        found.append(warning(_CHECK, text, f"Write the query as {SQL}, or its file as {SQL_FILE}."))
    found += _functions(split_list(props.get(FUNCTIONS, "")))
    return found


def _dead_letter_keys(
    props: Mapping[str, str], given: Sequence[str], has_query: bool
) -> Iterator[Finding]:
    keys = [name for name in given if name.startswith(_DEAD_LETTERS)]
    if not keys:
        return
    if not has_query:
        text = f"{', '.join(keys)} {_have(keys)} no effect: only records on which a query fails become dead letters."
        yield warning(_CHECK, text)
    elif _DEAD_TOPIC not in given:
        text = f"{', '.join(keys)} {_have(keys)} no effect without {_DEAD_TOPIC}."
        yield warning(_CHECK, text)
    elif props.get(_TOLERANCE, "").strip() != "all":
        yield warning(
            _CHECK,
            f"{_DEAD_TOPIC} has no effect without {_TOLERANCE}=all: a record on which the query fails stops its partition.",
            f"Set {_TOLERANCE}=all to go on without such records.",
        )


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _functions(names: Sequence[str]) -> Iterator[Finding]:
    for name in filter(None, names):
        module = name.partition(":")[0]
        if not _FUNCTION.fullmatch(name):
            yield error(_CHECK, f"{FUNCTIONS} has {name}.", "Write package.module:name for each.")
        elif not is_importable(module):
            yield warning(
                _CHECK,
                f"{FUNCTIONS} names {name}, and there is no module {module} here.",
                "It must be installed where workers and Spark's executors run, for the Python that runs them.",
            )


def is_importable(module: str) -> bool:
    """Whether there is such a module, without running anything of it."""
    first, *others = module.split(".")
    try:
        spec: ModuleSpec | None = importlib.util.find_spec(first)
    except ValueError:  # it is the program that runs
        return not others
    name = first
    for part in others:
        if spec is None or spec.submodule_search_locations is None:
            return False
        name = f"{name}.{part}"
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec is not None


# -- topics ---------------------------------------------------------------------------------------


def asked_topic_findings(flow: Copying) -> list[Finding]:
    """Of the topics that a query is for: those that the flow does not copy."""
    query = flow.config.query
    if query is None:
        return []
    policy = flow.config.policy
    copied = [
        one.topic
        for one in flow.plan()
        if one.remote is not None and not policy.is_heartbeats_topic(one.topic)
    ]
    found = []
    for pattern in query.topics:
        compiled = compile_java_patterns([pattern], TOPICS)
        if pattern == _EVERYTHING or any(compiled.matches(topic) for topic in copied):
            continue
        found.append(
            warning(
                _CHECK,
                f"{TOPICS} has {pattern}, which matches no topic that {flow.name} copies.{did_you_mean(pattern, copied)}",
                "The query is for names on the source, and for topics that topics and topics.exclude pick.",
            )
        )
    return found


def dead_letter_findings(flows: Sequence[Copying]) -> list[Finding]:
    """Topics of dead letters that are topics of copies, or are copied themselves."""
    found: list[Finding] = []
    for flow in flows:
        config = flow.config
        topic = config.dead_letters.topic if config.query and config.errors_tolerated else ""
        if topic:
            found += _mixed(flow, topic, flows)
            found += _copied(flow, topic, flows)
    return found


def _mixed(flow: Copying, topic: str, flows: Sequence[Copying]) -> Iterator[Finding]:
    origins = [
        f"{one.topic} of {other.config.source_alias}"
        for other in flows
        if other.target_id == flow.target_id
        for one in other.plan()
        if one.remote == topic
    ]
    if origins:
        yield error(
            _CHECK,
            f"{_DEAD_TOPIC}={topic} of {flow.name} is where {origins[0]} is copied to.",
            "Give the dead letters a topic of their own.",
        )


def _copied(flow: Copying, topic: str, flows: Sequence[Copying]) -> Iterator[Finding]:
    """By a flow that has our target as its source."""
    way = way_back(flows, (flow.target_id, topic))
    if way:
        yield error(
            "loop",
            f"The dead letters of {flow.name} in {topic} would be copied in a circle by {' and '.join(way)}.",
            f"Name {topic} in topics.exclude of these flows.",
        )
        return
    for other in flows:
        remote = other.remote(topic) if other.source_id == flow.target_id else None
        if remote is not None:
            yield warning(
                _CHECK,
                f"{other.name} would copy the dead letters of {flow.name} in {topic}, as {remote}.",
                f"If that is not meant, name {topic} in {other.name}'s topics.exclude.",
            )
