"""Replacements in texts that need not be made by Spark: the plan of a query in; how columns of its result are made out.

A column that is nothing but `regexp_replace` of the record's own key or value, perhaps several times in turn, is made behind
Spark (`edits`), of the records that the query keeps, so that the texts need not go there and back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .columns import Edit
from .edits import can_be_made
from .patterns import rewritten, translated
from .plans import class_of, seq


def edits_within(plan: Any, names: Mapping[int, str]) -> dict[str, Edit]:
    """By their names, the columns of the result that can be made so. `names` are the record's own columns by their ids."""
    found: dict[str, Edit] = {}
    if class_of(plan) != "Project":
        return found
    for each in seq(plan.projectList()):
        if class_of(each) == "Alias" and "regexp_replace(" in str(each.toString()):
            edit = _edit(each.child(), names)
            if edit is not None and can_be_made(edit):
                found[str(each.name())] = edit
    return found


def _edit(expression: Any, names: Mapping[int, str]) -> Edit | None:
    if class_of(expression) != "Cast" or expression.dataType().typeName() != "binary":
        return None
    expression = expression.child()
    replacements: list[tuple[str, str]] = []
    while class_of(expression) == "RegExpReplace":
        expression, *rest = seq(expression.children())
        replacement = _replacement(*rest)
        if replacement is None:
            return None
        replacements.append(replacement)
    column = own_text(expression, names)
    return Edit(column, tuple(reversed(replacements))) if column and replacements else None


def _replacement(pattern: Any, text: Any, position: Any) -> tuple[str, str] | None:
    constants = pattern, text, position
    if any(class_of(each) != "Literal" or each.value() is None for each in constants):
        return None
    found = translated(str(pattern.value().toString()))
    if found is None or position.value() != 1:
        return None
    made = rewritten(str(text.value().toString()), found.groups)
    return None if made is None else (found.text, made)


def own_text(expression: Any, names: Mapping[int, str]) -> str | None:
    """The record's column that an expression is as a text, if it is that."""
    if class_of(expression) != "Cast" or expression.dataType().typeName() != "string":
        return None
    return own_column(expression.child(), names)


def own_column(expression: Any, names: Mapping[int, str]) -> str | None:
    """The record's column that an expression is, if it is that."""
    if class_of(expression) != "AttributeReference":
        return None
    return names.get(expression.exprId().id())
