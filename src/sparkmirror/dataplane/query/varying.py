"""What in a query gives another answer each time: Spark's plan of it in; the name of a function, or a word for the time, out.

Spark takes `now`, `today`, `tomorrow` and `yesterday` for the time if they are written in the query where a time is wanted, as in
`TIMESTAMP'now'` or `to_date('today')`: the parser or the optimizer puts in the time. In a record they are only text.
"""

from __future__ import annotations

import re
from typing import Any

from .plans import class_of, expressions, seq

_NOW = {"CurrentTimestamp", "CurrentDate", "CurrentTime", "LocalTimestamp", "Now"}
_TIMES = {"DateType", "TimestampType", "TimestampNTZType"}
_WORD = re.compile(r"[\x00-\x20]*(now|today|tomorrow|yesterday)(?![a-z])", re.IGNORECASE)
_TYPED = re.compile(r"(?:date|timestamp(?:_ntz|_ltz)?)\b(.*)", re.IGNORECASE | re.DOTALL)


def varying(session: Any, analyzed: Any) -> str:
    """What a query asks for that is not the same twice; empty if there is no such thing."""
    for each in expressions(analyzed):
        if found := _function(each) or _literal(session, each):
            return found
    # Functions such as to_date are casts, once Spark has replaced them.
    rule = session._jvm.org.apache.spark.sql.catalyst.optimizer.ReplaceExpressions
    for each in expressions(rule.apply(analyzed)):
        if found := _cast(each):
            return found
    return ""


def _function(expression: Any) -> str:
    kind = class_of(expression)
    if kind in _NOW:
        return str(expression.prettyName())
    if kind == "AesEncrypt" and _is_seeded(expression):
        return "aes_encrypt without an iv"
    if expression.deterministic():
        return ""
    if not all(child.deterministic() for child in seq(expression.children())):
        return ""
    return str(expression.name() if kind == "PythonUDF" else expression.prettyName())


def _is_seeded(encryption: Any) -> bool:
    """Whether an encryption begins with something random, which Spark does not hold to be so."""
    mode, start = _constant(encryption.mode()), _constant(encryption.iv())
    return start == "" and (mode is None or mode.upper() != "ECB")


def _constant(expression: Any) -> str | None:
    """The text that is written there, None for anything else."""
    while class_of(expression) == "Cast":
        expression = expression.child()
    return str(expression.toString()) if class_of(expression) == "Literal" else None


def _literal(session: Any, expression: Any) -> str:
    """The word of which the parser has made a time: looked up in the text of the query, since the plan has only the time."""
    if class_of(expression) != "Literal" or class_of(expression.dataType()) not in _TIMES:
        return ""
    origin = expression.origin()
    if origin.sqlText().isEmpty() or origin.startIndex().isEmpty() or origin.stopIndex().isEmpty():
        return ""
    text = origin.sqlText().get()[origin.startIndex().get() : origin.stopIndex().get() + 1]
    written = _TYPED.fullmatch(text)
    if written is None:
        return ""
    parser = session._jsparkSession.sessionState().sqlParser()
    return _word(parser.parseExpression(written[1]).toString())  # knows about escapes and comments


def _cast(expression: Any) -> str:
    """The word that is cast to a time, if that can be known without any record."""
    if class_of(expression) != "Cast" or class_of(expression.dataType()) not in _TIMES:
        return ""
    child = expression.child()
    if not child.foldable() or class_of(child.dataType()) != "StringType":
        return ""
    value = child.eval(None)
    return "" if value is None else _word(value.toString())


def _word(text: str) -> str:
    found = _WORD.match(text)
    return "" if found is None else f"'{found[1].lower()}'"
