"""The description of the REST interface: the document in `openapi.json` as it is, and as a page for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from starlette.responses import Response

from .answers import JSON
from .routes import Call, Route, always

_FILE = Path(__file__).with_name("openapi.json")
_HTML = "text/html"
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
details {{ border-top: 1px solid #8884; padding: .4rem 0; }}
summary {{ cursor: pointer; }}
code {{ font-family: ui-monospace, monospace; }}
.method {{ display: inline-block; width: 4.5rem; font-weight: 600; }}
td {{ padding: .1rem 1rem .1rem 0; vertical-align: top; }}
</style>
</head>
<body>
<h1>{title}</h1>
<p>{description}</p>
<p>Machine-readable: <a href="openapi.json">openapi.json</a></p>
{operations}
</body>
</html>
"""


class OpenApi:
    """Endpoints of the description."""

    def __init__(self) -> None:
        self._document = _FILE.read_bytes()
        self._page = page(json.loads(self._document)).encode()

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/openapi.json", self.document, is_local=always, consumes=None),
            Route("GET", "/docs", self.docs, is_local=always, consumes=None, produces=_HTML),
        ]

    def document(self, call: Call) -> Response:
        return Response(self._document, media_type=JSON)

    def docs(self, call: Call) -> Response:
        return Response(self._page, media_type=_HTML)


def page(document: Mapping[str, Any]) -> str:
    """The description as HTML that needs nothing else."""
    info = document["info"]
    operations = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if method != "parameters"
    ]
    return _PAGE.format(
        title=escape(info["title"]),
        description=escape(info["description"]),
        operations="\n".join(operations),
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> str:
    answers = "".join(
        f"<tr><td><code>{escape(status)}</code></td><td>{escape(_text(answer))}</td></tr>"
        for status, answer in operation["responses"].items()
    )
    return (
        f'<details><summary><span class="method">{method.upper()}</span> '
        f"<code>{escape(path)}</code>: {escape(operation['summary'])}</summary>"
        f"<p>{escape(operation.get('description', ''))}</p><table>{answers}</table></details>"
    )


def _text(answer: Mapping[str, Any]) -> str:
    reference = str(answer.get("$ref", ""))
    return str(answer.get("description", reference.rpartition("/")[2]))
