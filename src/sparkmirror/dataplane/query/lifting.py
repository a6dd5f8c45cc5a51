"""Fields of JSON that need not be read by Spark: a plan in; one over records with these fields beside their columns out.

`get_json_object` of a record's key or value, with a path that is only names, becomes a column of its own, which the first step of
a job fills (`fields`). Of the documents that are left to Spark this column is null, and it does what the query says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from .carrying import Carrying
from .columns import TYPES, Feed, left, place
from .narrowing import Narrowing, needed
from .plans import class_of, dataset, expressions, seq

_NAMES_ONLY = re.compile(r"\$(\.[A-Za-z0-9_-]+)+")


def lifted(
    session: SparkSession, plan: Any, leaf: Any, given: Callable[[Feed], DataFrame]
) -> tuple[Any, Feed] | None:
    """The plan, and what its records have then; None if there is nothing to lift."""
    calls = _Calls(leaf)
    fields = calls.within(plan)
    if not fields:
        return None
    narrowing = Narrowing(session, leaf, given(Feed(fields=fields)))
    columns = {each.name(): each for each in seq(narrowing.leaf.output())}
    lifts = [
        each for name, each in columns.items() if name not in {a.name() for a in seq(leaf.output())}
    ]
    made = Carrying(session, narrowing.leaf, lifts).through(narrowing.of(plan))
    made = _Replacing(session, calls, columns).of(made)
    jvm: Any = session._jvm
    made = jvm.org.apache.spark.sql.catalyst.plans.logical.Project(plan.output(), made)
    made = dataset(session, made)._jdf.queryExecution().optimizedPlan()
    feed = Feed(frozenset(TYPES) & needed(made, narrowing.leaf), fields)
    return Narrowing(session, narrowing.leaf, given(feed)).of(made), feed


class _Calls:
    """Knows the expressions that can be lifted."""

    def __init__(self, leaf: Any) -> None:
        self._names = {
            each.exprId().id(): each.name()
            for each in seq(leaf.output())
            if each.name() in ("key", "value")
        }

    def within(self, plan: Any) -> dict[str, tuple[str, ...]]:
        """By column, the paths that a plan asks for."""
        found: dict[str, dict[str, None]] = {}
        for each in expressions(plan):
            call = self.read(each)
            if call is not None:
                found.setdefault(call[0], {})[call[1]] = None
        return {column: tuple(sorted(paths)) for column, paths in sorted(found.items())}

    def read(self, expression: Any) -> tuple[str, str] | None:
        """The column and the path, if it is such an expression."""
        if class_of(expression) != "GetJsonObject":
            return None
        text, path = seq(expression.children())
        if class_of(text) != "Cast" or class_of(path) != "Literal" or path.value() is None:
            return None
        column = text.child()
        if class_of(column) != "AttributeReference" or text.dataType().typeName() != "string":
            return None
        name = self._names.get(column.exprId().id())
        written = str(path.value().toString())
        return (name, written) if name and _NAMES_ONLY.fullmatch(written) else None


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
            own = [self._replaced(each) for each in seq(plan.projectList())]
            return self._logical.Project(self._to_seq(own), self.of(plan.child()))
        if kind == "Filter":
            return self._logical.Filter(self._replaced(plan.condition()), self.of(plan.child()))
        children = [self.of(child) for child in seq(plan.children())]
        return plan.withNewChildren(self._to_seq(children)) if children else plan

    def _replaced(self, expression: Any) -> Any:
        call = self._calls.read(expression)
        if call is not None:
            return self._lifted(expression, *call)
        children = seq(expression.children())
        if not children:
            return expression
        return expression.withNewChildren(self._to_seq([self._replaced(each) for each in children]))

    def _lifted(self, expression: Any, column: str, path: str) -> Any:
        document = self._columns[left(column)]
        text, written = seq(expression.children())
        text = text.withNewChildren(self._to_seq([document]))
        return self._expressions.If(
            self._expressions.IsNull(document),
            self._columns[place(column, path)],
            expression.withNewChildren(self._to_seq([text, written])),
        )
