"""A plan that raises on no record: the plan of a query in; one that says of each record what the query makes of it out.

Every condition and every projection is tried (`TryEval`) for the records that have come so far, inside of a structure, so that
null means that it raised. What is not tried for a record cannot raise: those that a condition has dropped go no further. Of a
function in Python there is a guarded one, which returns what the other raises.

Conditions are tried one by one in the order in which Spark's filter does it: it stops at the first that is not true, and looks
for nulls of a column before a condition that uses it. So this plan raises on no record on which the query itself would not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from pyspark.sql import SparkSession
from pyspark.sql.udf import UserDefinedFunction

from .columns import DROPPED, ERROR, KEPT, RAISED, STATE
from .plans import class_of, seq


class _Made(NamedTuple):
    """A plan, and the columns in it that hold what became of a record and what a function said."""

    plan: Any
    state: Any
    error: Any

    @property
    def columns(self) -> list[Any]:
        """All others."""
        own = (_id(self.state), _id(self.error))
        return [each for each in seq(self.plan.output()) if _id(each) not in own]


class Careful:
    """Makes such plans over one leaf. `guarded` are the guarded functions by the names of the others."""

    def __init__(
        self,
        session: SparkSession,
        leaf: Any,
        number: Any,
        guarded: Mapping[str, UserDefinedFunction],
    ) -> None:
        jvm: Any = session._jvm
        self._jvm = jvm
        self._session = session._jsparkSession
        self._expressions = jvm.org.apache.spark.sql.catalyst.expressions
        self._logical = jvm.org.apache.spark.sql.catalyst.plans.logical
        self._types = jvm.org.apache.spark.sql.types.DataTypes
        self._leaf = leaf
        self._number = number
        self._guarded = guarded

    def over(self, plan: Any) -> Any | None:
        """The plan, with `STATE` and `ERROR` beside its own columns; None if it is made of other things than we know."""
        found = self._made(plan)
        return None if found is None else found.plan

    def _made(self, plan: Any) -> _Made | None:
        kind = class_of(plan)
        if kind == class_of(self._leaf) and plan.sameResult(self._leaf):
            return self._begun(plan)
        if kind not in ("Filter", "Project", "ArrowEvalPython", "BatchEvalPython"):
            return None
        found = self._made(plan.child())
        if found is None:
            return None
        if kind == "Project":
            return self._projected(found, seq(plan.projectList()))
        if kind == "Filter":
            for condition in _conditions(plan):
                found = self._filtered(found, condition)
            return found
        for call, result in zip(seq(plan.udfs()), seq(plan.resultAttrs()), strict=True):
            if found is not None:
                found = self._called(found, plan, call, result)
        return found

    def _begun(self, leaf: Any) -> _Made:
        """All are kept so far. Asked of the number, which is never negative, so that Spark does not find out beforehand."""
        zero = self._expressions.Literal.default(self._number.dataType())
        never = self._expressions.LessThan(self._number, zero)
        state = self._alias(self._expressions.If(never, self._int(DROPPED), self._int(KEPT)), STATE)
        error = self._alias(self._literal(None, self._types.StringType), ERROR)
        plan = self._project([*seq(leaf.output()), state, error], leaf)
        return _Made(plan, state.toAttribute(), error.toAttribute())

    def _filtered(self, found: _Made, condition: Any) -> _Made:
        columns = found.columns
        found, tried = self._tried(found, [condition])
        held = self._field(tried, 0)
        verdict = self._expressions.If(held, self._int(KEPT), self._int(DROPPED))
        return self._judged(found, self._expressions.IsNull(tried), verdict, columns)

    def _projected(self, found: _Made, columns: list[Any]) -> _Made:
        found, tried = self._tried(found, columns)
        made = [
            self._alias(self._field(tried, index), each.name(), each.exprId())
            for index, each in enumerate(columns)
            if _id(each) != _id(self._number)
        ]
        raised = self._expressions.IsNull(tried)
        return self._judged(found, raised, self._int(KEPT), [self._number, *made])

    def _called(self, found: _Made, node: Any, call: Any, result: Any) -> _Made | None:
        """A function in Python is called with what becomes of its arguments, first of all those that are such functions."""
        guarded = self._guarded.get(call.name())
        arguments = seq(call.children())
        if guarded is None or any(
            class_of(each) == "NamedArgumentExpression" for each in arguments
        ):
            return None
        for index, each in enumerate(arguments):
            if class_of(each) == "PythonUDF":
                inner = self._alias(each, "inner").toAttribute()
                below = self._called(found, node, each, inner)
                if below is None:
                    return None
                found, arguments[index] = below, inner
        columns = found.columns
        found, tried = self._tried(found, arguments)
        given = [
            self._alias(self._field(tried, index), "given") for index, _ in enumerate(arguments)
        ]
        raised = self._expressions.IsNull(tried)
        found = self._judged(found, raised, self._int(KEPT), [*columns, *given])
        made = self._guarded_call(guarded, [found.state, *(each.toAttribute() for each in given)])
        answer = self._alias(made, "answer").toAttribute()
        found = found._replace(plan=self._evaluated(node, made, answer, found.plan))
        value = self._alias(self._field(answer, 0), result.name(), result.exprId())
        error = self._field(answer, 1)
        raised = self._expressions.IsNotNull(error)
        return self._judged(found, raised, self._int(KEPT), [*columns, value], error)

    def _guarded_call(self, guarded: UserDefinedFunction, arguments: list[Any]) -> Any:
        return self._expressions.PythonUDF(
            guarded._name,
            guarded._judf.func(),
            self._session.parseDataType(guarded.returnType.json()),
            self._seq(arguments),
            guarded.evalType,
            True,
            self._expressions.NamedExpression.newExprId(),
        )

    def _evaluated(self, node: Any, call: Any, answer: Any, plan: Any) -> Any:
        calls, answers = self._seq([call]), self._seq([answer])
        if class_of(node) == "BatchEvalPython":
            return self._logical.BatchEvalPython(calls, answers, plan)
        return self._logical.ArrowEvalPython(calls, answers, plan, node.evalType())

    def _judged(
        self, found: _Made, raised: Any, verdict: Any, columns: list[Any], said: Any = None
    ) -> _Made:
        """What is the state of each record, now that something was tried."""
        kept = self._is_kept(found.state)
        verdict = self._expressions.If(raised, self._int(RAISED), verdict)
        state = self._alias(self._expressions.If(kept, verdict, found.state), STATE)
        error = found.error
        if said is not None:
            error = self._alias(self._expressions.If(kept, said, error), ERROR)
        plan = self._project([state, error, *columns], found.plan)
        return _Made(plan, state.toAttribute(), error.toAttribute())

    def _tried(self, found: _Made, expressions: list[Any]) -> tuple[_Made, Any]:
        """A structure of what these give, null if one of them raises; or if the record has not come so far."""
        fields: list[Any] = []
        for index, each in enumerate(expressions):
            value = each.child() if class_of(each) == "Alias" else each
            fields += [self._literal(f"f{index}", self._types.StringType), value]
        struct = self._expressions.CreateNamedStruct(self._seq(fields))
        tried = self._expressions.TryEval(struct)
        nothing = self._literal(None, struct.dataType())
        kept = self._is_kept(found.state)
        column = self._alias(self._expressions.If(kept, tried, nothing), "tried")
        plan = self._project([*seq(found.plan.output()), column], found.plan)
        return found._replace(plan=plan), column.toAttribute()

    # -- making expressions -----------------------------------------------------------------------

    def _is_kept(self, state: Any) -> Any:
        return self._expressions.EqualTo(state, self._int(KEPT))

    def _field(self, struct: Any, index: int) -> Any:
        return self._expressions.GetStructField(struct, index, self._jvm.scala.Option.empty())

    def _int(self, value: int) -> Any:
        return self._literal(value, self._types.IntegerType)

    def _literal(self, value: Any, kind: Any) -> Any:
        return self._expressions.Literal.create(value, kind)

    def _alias(self, expression: Any, name: str, identity: Any = None) -> Any:
        if identity is None:
            identity = self._expressions.NamedExpression.newExprId()
        nothing = self._jvm.scala.Option.empty()
        return self._expressions.Alias(
            expression, name, identity, self._seq([]), nothing, self._seq([])
        )

    def _project(self, columns: list[Any], plan: Any) -> Any:
        return self._logical.Project(self._seq(columns), plan)

    def _seq(self, items: list[Any]) -> Any:
        return self._jvm.PythonUtils.toSeq(items)


def _id(named: Any) -> int:
    return int(named.exprId().id())


def _conditions(plan: Any) -> list[Any]:
    """The parts of a filter's condition, in the order in which Spark tries them."""
    parts = _split(plan.condition())
    checks = [part for part in parts if _is_null_check(part)]
    early = {_id(c.child()): c for c in checks if class_of(c.child()) == "AttributeReference"}
    found: list[Any] = []
    for part in parts:
        if part in checks:
            continue
        for attribute in seq(part.references().toSeq()):
            check = early.pop(_id(attribute), None)
            if check is not None:
                found.append(check)
        found.append(part)
    return found + [check for check in checks if check not in found]


def _split(condition: Any) -> list[Any]:
    if class_of(condition) == "And":
        return _split(condition.left()) + _split(condition.right())
    return [condition]


def _is_null_check(condition: Any) -> bool:
    return class_of(condition) == "IsNotNull" and _is_strict(condition.child())


def _is_strict(expression: Any) -> bool:
    """Whether it is null for null, all through."""
    return bool(expression.nullIntolerant()) and all(
        _is_strict(child) for child in seq(expression.children())
    )
