"""What need not be done by Spark: a plan in; one over records with fields of their JSON beside their columns out.

`get_json_object` of a record's key or value, with a path that is only names, becomes a column of its own, which is filled before
(`feeding`). Of the documents that are left to Spark this column is null, and it does what the query says.

A column of the result that is made behind Spark (`editing`) is made here only of records whose text is none.

Where a plan only asks whether a record has a key or value, and nothing in it can raise (`harmless`), a column says so.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from .carrying import Carrying
from .columns import TYPES, Edit, Feed, left, missing, place, unfit
from .editing import edits_within, own_column, own_text
from .harmless import is_harmless
from .narrowing import Narrowing, needed
from .plans import class_of, dataset, expressions, nodes, seq

log = logging.getLogger(__name__)
_NAMES_ONLY = re.compile(r"\$(\.[A-Za-z0-9_-]+)+")


class Lifted(NamedTuple):
    """A plan, what its records have then, and what is made behind it."""

    plan: Any
    feed: Feed
    edits: Mapping[str, Edit]


def lifted(
    session: SparkSession, plan: Any, leaf: Any, given: Callable[[Feed], DataFrame]
) -> Lifted | None:
    """None if there is nothing to lift, or if that cannot be done."""
    try:
        return _lifted(session, plan, leaf, given)
    except (RecursionError, Py4JJavaError, PySparkException) as error:
        log.info("A query is run as it is, all of it is left to Spark: %r", error)
        return None


def _lifted(
    session: SparkSession, plan: Any, leaf: Any, given: Callable[[Feed], DataFrame]
) -> Lifted | None:
    names = {
        each.exprId().id(): each.name()
        for each in seq(leaf.output())
        if each.name() in ("key", "value")
    }
    fields, edits = _Calls(names).within(plan), edits_within(plan, names)
    nulls = _asked_for_null(plan, names)
    # What is edited has patterns that cannot raise.
    if nulls and not is_harmless(plan, leaf, edits.keys()):
        nulls = frozenset()
    if not fields and not edits and not nulls:
        return None
    found = _made(session, plan, leaf, given, Feed(fields=fields, nulls=nulls), edits, names)
    if found is not None and nulls & found.feed.columns:  # it is there anyway
        nulls -= found.feed.columns
        found = _made(session, plan, leaf, given, Feed(fields=fields, nulls=nulls), edits, names)
    return found


def _made(
    session: SparkSession,
    plan: Any,
    leaf: Any,
    given: Callable[[Feed], DataFrame],
    wanted: Feed,
    edits: Mapping[str, Edit],
    names: Mapping[int, str],
) -> Lifted | None:
    """The plan with this in the place of what the record has; None if it needs nothing of it."""
    edited = frozenset(edit.column for edit in edits.values())
    wanted = replace(wanted, edited=edited)
    narrowing = Narrowing(session, leaf, given(wanted))
    columns = {each.name(): each for each in seq(narrowing.leaf.output())}
    own = {each.name() for each in seq(leaf.output())}
    lifts = [each for name, each in columns.items() if name not in own]
    made = Carrying(session, narrowing.leaf, lifts).through(narrowing.of(plan))
    calls = _Calls(names, wanted.nulls)
    made = _Replacing(session, calls, columns).of(_edited(session, made, edits, columns))
    jvm: Any = session._jvm
    made = jvm.org.apache.spark.sql.catalyst.plans.logical.Project(plan.output(), made)
    made = dataset(session, made)._jdf.queryExecution().optimizedPlan()
    used = needed(made, narrowing.leaf)
    paths = {
        column: tuple(path for path in paths if place(column, path) in used)
        for column, paths in wanted.fields.items()
    }
    read = {column: some for column, some in paths.items() if some}
    nulls = frozenset(column for column in wanted.nulls if missing(column) in used)
    if not read and not edits and not nulls:
        return None
    feed = Feed(frozenset(TYPES) & used, read, edited, nulls)
    return Lifted(Narrowing(session, narrowing.leaf, given(feed)).of(made), feed, edits)


def _asked_for_null(plan: Any, names: Mapping[int, str]) -> frozenset[str]:
    """The columns of which a plan asks whether a record has them."""
    if "null(" not in str(plan.toString()):
        return frozenset()
    found = (
        own_column(each.child(), names)
        for each in expressions(plan)
        if class_of(each) in ("IsNull", "IsNotNull")
    )
    return frozenset(filter(None, found))


def _edited(
    session: SparkSession, plan: Any, edits: Mapping[str, Edit], columns: Mapping[str, Any]
) -> Any:
    """The plan, whose last projection makes these columns only of texts that are none: all else is null for it."""
    if not edits:
        return plan
    jvm: Any = session._jvm
    to_seq = jvm.PythonUtils.toSeq

    def moved(expression: Any, column: Any) -> Any:
        if class_of(expression) == "AttributeReference":
            return column
        children = [moved(child, column) for child in seq(expression.children())]
        return expression.withNewChildren(to_seq(children)) if children else expression

    made = [
        moved(each, columns[unfit(edits[each.name()].column)]) if each.name() in edits else each
        for each in seq(plan.projectList())
    ]
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(to_seq(made), plan.child())


class _Calls:
    """Knows the expressions that can be lifted."""

    def __init__(self, names: Mapping[int, str], nulls: frozenset[str] = frozenset()) -> None:
        self._names, self._nulls = names, nulls

    def within(self, plan: Any) -> dict[str, tuple[str, ...]]:
        """By column, the paths that a plan asks for."""
        found: dict[str, dict[str, None]] = {}
        for node in nodes(plan):
            for each in seq(node.expressions()):
                for column, path in self._of(each):
                    found.setdefault(column, {})[path] = None
        return {column: tuple(sorted(paths)) for column, paths in sorted(found.items())}

    def _of(self, expression: Any) -> Iterator[tuple[str, str]]:
        if not self.may_be_in(expression):
            return
        call = self.read(expression)
        if call is not None:
            yield call
        for child in seq(expression.children()):
            yield from self._of(child)

    def may_be_in(self, expression: Any) -> bool:
        """Told by its text, which is asked for once: to look at each part costs a call of the JVM, and there may be hundreds."""
        text = str(expression.toString())
        return "get_json_object" in text or (bool(self._nulls) and "null(" in text)

    def read(self, expression: Any) -> tuple[str, str] | None:
        """The column and the path, if it is such an expression."""
        if class_of(expression) != "GetJsonObject":
            return None
        text, path = seq(expression.children())
        if class_of(path) != "Literal" or path.value() is None:
            return None
        name = own_text(text, self._names)
        written = str(path.value().toString())
        return (name, written) if name and _NAMES_ONLY.fullmatch(written) else None

    def null_of(self, expression: Any) -> str | None:
        """The column, if it asks whether a record has that, and is answered by another."""
        if class_of(expression) not in ("IsNull", "IsNotNull"):
            return None
        name = own_column(expression.child(), self._names)
        return name if name in self._nulls else None

    def checked(self, condition: Any) -> set[str]:
        """The columns that a condition demands not to be null, and that Spark is given."""
        if class_of(condition) == "And":
            return self.checked(condition.left()) | self.checked(condition.right())
        is_check = class_of(condition) == "IsNotNull"
        name = own_column(condition.child(), self._names) if is_check else None
        return {name} if name and name not in self._nulls else set()


class _Replacing:
    """Puts columns in the place of such expressions."""

    def __init__(self, session: SparkSession, calls: _Calls, columns: dict[str, Any]) -> None:
        jvm: Any = session._jvm
        self._to_seq = jvm.PythonUtils.toSeq
        self._logical = jvm.org.apache.spark.sql.catalyst.plans.logical
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        self._calls = calls
        self._columns = columns

    def of(self, plan: Any) -> Any:
        kind = class_of(plan)
        if kind == "Project":
            own = [self._replaced(each, set()) for each in seq(plan.projectList())]
            return self._logical.Project(self._to_seq(own), self.of(plan.child()))
        if kind == "Filter":
            condition = plan.condition()
            checked = self._calls.checked(condition)
            return self._logical.Filter(self._replaced(condition, checked), self.of(plan.child()))
        children = [self.of(child) for child in seq(plan.children())]
        return plan.withNewChildren(self._to_seq(children)) if children else plan

    def _replaced(self, expression: Any, checked: set[str]) -> Any:
        if not self._calls.may_be_in(expression):
            return expression
        call = self._calls.read(expression)
        if call is not None:
            return self._lifted(expression, *call, checked)
        name = self._calls.null_of(expression)
        if name is not None:
            is_null = self._columns[missing(name)]
            return is_null if class_of(expression) == "IsNull" else self._expressions.Not(is_null)
        children = [self._replaced(each, checked) for each in seq(expression.children())]
        return expression.withNewChildren(self._to_seq(children)) if children else expression

    def _lifted(self, expression: Any, column: str, path: str, checked: set[str]) -> Any:
        make = self._expressions
        document = self._columns[left(column)]
        text, written = seq(expression.children())
        is_read = make.IsNull(document)
        if column in checked:
            # Spark sees to it that the column is not null before it looks at what names the column, and not before anything
            # else: what raises on null must go on naming it.
            is_read = make.And(is_read, make.IsNotNull(text.child()))
        text = text.withNewChildren(self._to_seq([document]))
        return make.If(
            is_read,
            self._columns[place(column, path)],
            expression.withNewChildren(self._to_seq([text, written])),
        )
