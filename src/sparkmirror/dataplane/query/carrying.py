"""Columns that a plan is to carry: a plan in; the same with columns of its leaf behind its own out.

A plan that would not leave every record what it is cannot, and is refused with the reason.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from sparkmirror.errors import QueryRefused

from .plans import class_of, seq

_REASONS = {
    "Aggregate": "it aggregates",
    "Deduplicate": "it compares records with each other (DISTINCT)",
    "Distinct": "it compares records with each other (DISTINCT)",
    "Expand": "it aggregates",
    "Except": "it compares records with each other (EXCEPT)",
    "Generate": "it makes several records of one (explode, LATERAL VIEW)",
    "GlobalLimit": "it counts records (LIMIT)",
    "Intersect": "it compares records with each other (INTERSECT)",
    "Join": "it joins",
    "LateralJoin": "it joins",
    "LocalLimit": "it counts records (LIMIT)",
    "Offset": "it counts records (OFFSET)",
    "Repartition": "it moves records between partitions",
    "RepartitionByExpression": "it moves records between partitions",
    "Sample": "it picks records by chance (TABLESAMPLE)",
    "Sort": "it sorts",
    "Tail": "it counts records",
    "Union": "it puts several results together (UNION)",
    "Window": "it looks at several records at once (OVER)",
}
RULE = (
    "A query works record by record: SELECT what it is to be FROM records WHERE it is to be kept."
)
_PASSING = {"Project", "Filter", "SubqueryAlias", "View", "ArrowEvalPython", "BatchEvalPython"}


class Carrying:
    """Makes a plan carry columns of its leaf from there to the result."""

    def __init__(self, session: SparkSession, leaf: Any, columns: list[Any]) -> None:
        self._jvm: Any = session._jvm
        self._leaf = leaf
        self._columns = columns

    def through(self, plan: Any) -> Any:
        """The same plan with the columns behind its own; QueryRefused where a record would not stay one."""
        kind = class_of(plan)
        if plan.sameResult(self._leaf) and kind == class_of(self._leaf):
            ids = {each.exprId().id() for each in seq(plan.output())}
            if any(each.exprId().id() not in ids for each in self._columns):  # another of the same
                raise QueryRefused(
                    "The query cannot be run: it reads records more than once.", RULE
                )
            return plan
        if kind not in _PASSING:
            reason = _REASONS.get(kind, f"Spark plans it with {kind}")
            raise QueryRefused(f"The query cannot be run: {reason}.", RULE)
        children = [self.through(child) for child in seq(plan.children())]
        if kind == "Project":
            own = seq(plan.projectList())
            ids = {each.exprId().id() for each in own}
            own += [c for c in self._columns if c.exprId().id() not in ids]
            logical = self._jvm.org.apache.spark.sql.catalyst.plans.logical
            return logical.Project(self._to_seq(own), children[0])
        return plan.withNewChildren(self._to_seq(children))

    def _to_seq(self, items: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(items)
