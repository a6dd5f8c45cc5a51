"""What a query does not look at need not go through Spark: a plan and what it needs in; a plan over these columns alone out."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from .plans import class_of, seq


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
            self._to_seq([own[each.name()] for each in seq(other.output())]),
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
