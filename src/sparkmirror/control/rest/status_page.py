"""The page `/status`: what this worker knows of all connectors and tasks comes in, HTML for people goes out.

It is made on the worker, needs no script, and loads itself anew every few seconds.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from string import Template

from starlette.responses import Response

from sparkmirror.control.herding import Herder
from sparkmirror.control.states import ConnectorState, State, TaskState
from sparkmirror.errors import NotFound

from .routes import Call, Route

_HTML = "text/html"
_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="refresh" content="5">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
body { font: 16px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .3rem 1rem .3rem 0; border-top: 1px solid #8884; vertical-align: top; }
td.number, th.number { text-align: right; }
tr.task td:first-child { padding-left: 1.5rem; }
.state { font-weight: 600; }
.FAILED { color: #c00; } .RUNNING { color: #080; } .PAUSED, .STOPPED, .UNASSIGNED, .RESTARTING { color: #a60; }
pre { white-space: pre-wrap; margin: .3rem 0; }
</style>
</head>
<body>
<h1>$title</h1>
<p>$summary</p>
<table>
<thead><tr><th>Connector, task</th><th>State</th><th>Worker</th><th class="number">Restarts</th><th>To know</th></tr></thead>
<tbody>
$rows
</tbody>
</table>
<p><a href="docs">REST</a> · <a href="metrics">metrics</a></p>
</body>
</html>
""")


class StatusPage:
    """The endpoint of the page."""

    def __init__(self, herder: Herder, worker_id: str) -> None:
        self._herder = herder
        self._worker_id = worker_id

    def routes(self) -> list[Route]:
        return [Route("GET", "/status", self.page, consumes=None, produces=_HTML)]

    def page(self, call: Call) -> Response:
        text = page(known_statuses(self._herder), self._worker_id)
        return Response(text.encode(), media_type=_HTML)


def known_statuses(herder: Herder) -> list[ConnectorState]:
    """All connectors that somebody has said something of, by name."""
    found = []
    for name in sorted(herder.connectors()):
        try:
            found.append(herder.connector_status(name))
        except NotFound:  # not started anywhere yet, or just deleted
            continue
    return found


def page(statuses: Iterable[ConnectorState], worker_id: str) -> str:
    """The statuses as HTML that needs nothing else."""
    known = list(statuses)
    return _PAGE.substitute(
        title=escape(f"Worker {worker_id}"),
        summary=escape(_summary(known)),
        rows="\n".join(row for status in known for row in _rows(status)),
    )


def _summary(known: list[ConnectorState]) -> str:
    states = [each.state for each in known] + [task.state for each in known for task in each.tasks]
    failed = states.count(State.FAILED)
    tasks = len(states) - len(known)
    trouble = f"{failed} FAILED" if failed else "none failed"
    return f"{len(known)} connector(s) with {tasks} task(s), {trouble}."


def _rows(status: ConnectorState) -> list[str]:
    why = _to_know(status)
    first = _row("connector", status.name, status.state, status.worker_id, status.restarts, why)
    return [
        first,
        *(
            _row("task", f"task {t.id}", t.state, t.worker_id, t.restarts, _to_know(t))
            for t in status.tasks
        ),
    ]


def _to_know(status: ConnectorState | TaskState) -> str:
    """Why it stands still, and what there is to know of it anyway."""
    return "\n".join(filter(None, (status.trace, status.note)))


def _row(kind: str, name: str, state: State, worker: str, restarts: int, trace: str | None) -> str:
    return (
        f'<tr class="{kind}"><td>{escape(name)}</td><td class="state {state.value}">{state.value}</td>'
        f'<td>{escape(worker)}</td><td class="number">{restarts}</td><td>{_reason(trace)}</td></tr>'
    )


def _reason(trace: str | None) -> str:
    if not trace:
        return ""
    first, _, rest = trace.partition("\n")
    if not rest:
        return escape(first)
    return f"<details><summary>{escape(first)}</summary><pre>{escape(rest)}</pre></details>"
