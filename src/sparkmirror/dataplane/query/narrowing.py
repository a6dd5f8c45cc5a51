"""What a query does not look at need not go through Spark: a plan and what it needs in; a plan over these columns alone out."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from .plans import class_of, expressions_of, nodes, seq


class Narrowing:
    """Puts another leaf, which gives some of the columns, in the place of the one that gives all."""

    def __init__(self, session: SparkSession, leaf: Any, narrow: DataFrame) -> None:
        jvm: Any = session._jvm
        self._to_seq = jvm.PythonUtils.toSeq
        self._wide = leaf
        other = narrow._jdf.queryExecution().analyzed()
        own = {each.name(): each for each in seq(leaf.output())}
        # The columns keep their identity, by which the rest of the plan knows them.
        self.leaf = jvm.org.apache.spark.sql.catalyst.plans.logical.MapInArrow(
            other.functionExpr(),
            self._to_seq([own.get(each.name(), each) for each in seq(other.output())]),
            other.child(),
            other.isBarrier(),
            other.profile(),
        )

    def of(self, plan: Any) -> Any:
        if class_of(plan) == class_of(self._wide) and plan.sameResult(self._wide):
            return self.leaf
        return plan.withNewChildren(
            self._to_seq([self.of(child) for child in seq(plan.children())])
        )


def needed(plan: Any, leaf: Any) -> set[str]:
    """The columns of the leaf that a plan looks at."""
    names = {a.exprId().id(): a.name() for a in seq(leaf.output())}
    found: set[str] = set()
    for node in nodes(plan):
        if class_of(node) == class_of(leaf):
            continue
        for each in expressions_of(node):
            if class_of(each) == "AttributeReference" and each.exprId().id() in names:
                found.add(names[each.exprId().id()])
    return found
