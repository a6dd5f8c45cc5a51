"""Answers with the content types Connect gives them: documents and messages come in, responses go out."""

from __future__ import annotations

from starlette.responses import Response

from sparkmirror.errors import SparkMirrorError
from sparkmirror.veil import VEIL

from .documents import encode, error_document

JSON = "application/json"


def answer(document: object, status: int = 200) -> Response:
    return Response(encode(document), status, media_type=JSON)


def empty(status: int) -> Response:
    return Response(b"", status)


def failure(status: int, message: str | None) -> Response:
    hidden = None if message is None else VEIL.hide(message)
    return answer(error_document(status, hidden), status)


def failure_of(error: SparkMirrorError) -> Response:
    """What is below ConnectError has a status of its own; everything else is 500."""
    status: int = getattr(error, "status", 500)
    return failure(status, str(error))


def refusal(status: int, reason: str) -> Response:
    """No endpoint takes this. Unlike other errors it has no content type, as with a Java worker."""
    return Response(encode(error_document(status, f"HTTP {status} {reason}")), status)
