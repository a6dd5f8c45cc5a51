"""Plans that cannot raise, whatever record they get: a plan in; whether that is sure out.

In such a plan it does not matter which of two conditions Spark looks at first, so that one may be put in the place of another.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from .plans import class_of, seq

_HARMLESS = frozenset(
    {
        "Alias",
        "And",
        "AttributeReference",
        "CaseWhen",
        "Coalesce",
        "Contains",
        "EndsWith",
        "EqualNullSafe",
        "EqualTo",
        "GetJsonObject",
        "GreaterThan",
        "GreaterThanOrEqual",
        "If",
        "In",
        "InSet",
        "IsNotNull",
        "IsNull",
        "LessThan",
        "LessThanOrEqual",
        "Literal",
        "Lower",
        "Not",
        "Or",
        "StartsWith",
        "Upper",
    }
)
_TEXTS = {"binary", "string"}


def is_harmless(plan: Any, leaf: Any, besides: Collection[str] = ()) -> bool:
    """Whether nothing in a plan above its leaf can raise, but for columns of the result of which that is known."""
    kind = class_of(plan)
    if kind == class_of(leaf):
        return True
    if kind not in ("Project", "Filter"):
        return False
    own = seq(plan.projectList()) if kind == "Project" else [plan.condition()]
    return all(
        _is_harmless(each)
        for each in own
        if not (class_of(each) == "Alias" and each.name() in besides)
    ) and is_harmless(plan.child(), leaf)


def _is_harmless(expression: Any) -> bool:
    return (class_of(expression) in _HARMLESS or _is_of_texts(expression)) and all(
        map(_is_harmless, seq(expression.children()))
    )


def _is_of_texts(expression: Any) -> bool:
    """Bytes taken as text, text as bytes, and several of either put together."""
    if class_of(expression) not in ("Cast", "Concat"):
        return False
    some = expression, *seq(expression.children())
    return {str(each.dataType().typeName()) for each in some} <= _TEXTS
