"""The command `check`: files or a connector's name in; findings and an exit code out.

What talks to Kafka is imported when the command needs it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkmirror.errors import ConfigError, SparkMirrorError

if TYPE_CHECKING:
    from sparkmirror.preflight.check import Subject
    from sparkmirror.preflight.findings import Report

_FILE = click.Path(path_type=Path)
_WRONG_INPUT = 2


@click.command()
@click.argument("what", nargs=-1, metavar="FILE|CONNECTOR...")
@click.option("--worker", type=_FILE, help="The worker's file, where FILE is a connector's.")
@click.option("--url", help="A worker's REST address, to check a connector that it has by name.")
@click.option(
    "--log", "logs", type=_FILE, multiple=True, help="Explain the known errors in a log file."
)
@click.option("--apis", is_flag=True, help="Show all APIs, not only those that lose something.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.5),
    default=30.0,
    show_default=True,
    help="Seconds for everything.",
)
def check(
    what: tuple[str, ...],
    worker: Path | None,
    url: str | None,
    logs: tuple[Path, ...],
    apis: bool,
    as_json: bool,
    timeout: float,
) -> None:
    """Look for what would go wrong, without changing anything: in an mm2.properties, a worker's file, or connectors.

    Exits with 0 if there is nothing worse than warnings, 1 if there are errors, 2 if the input cannot be used.
    """
    if not what and not logs and worker is None:
        raise click.UsageError("Name a file or a connector, or a log with --log.")
    try:
        report = _report(what, worker, url, logs, timeout, quiet=as_json)
    except ConfigError as error:
        if not as_json:
            raise
        click.echo(json.dumps({"level": "error", "error": str(error)}, indent=2))
        sys.exit(_WRONG_INPUT)
    except SparkMirrorError as error:
        raise ConfigError(error.message, error.remedy) from error
    _print(report, as_json, shows_all=apis)
    sys.exit(report.exit_code)


def _report(
    what: Sequence[str],
    worker: Path | None,
    url: str | None,
    logs: Sequence[Path],
    timeout: float,
    *,
    quiet: bool,
) -> Report:
    from sparkmirror.preflight.check import check as run_check
    from sparkmirror.preflight.findings import Report

    sections = [section for log in logs for section in _explained(log).sections]
    if what or worker is not None:
        subject = _subject(what, worker, url, timeout)
        tell = _silent if quiet or not sys.stderr.isatty() else _tell
        sections += run_check(subject, timeout, tell).sections
    return Report(sections).veiled()


def _subject(what: Sequence[str], worker: Path | None, url: str | None, timeout: float) -> Subject:
    from sparkmirror.preflight.check import Subject
    from sparkmirror.preflight.flow import joined
    from sparkmirror.preflight.subjects import connector_subject, read_subject, read_worker

    files = [Path(text) for text in what if url is None or Path(text).exists()]
    names = [text for text in what if url is not None and not Path(text).exists()]
    if not names or url is None:
        return read_subject(files, worker)
    from sparkmirror.tools.check_rest import connector_config, without_login

    config = None if worker is None else read_worker(worker)
    found = [read_subject(files, worker)] if files or worker else []
    for name in names:
        props = connector_config(url, name, min(timeout, 10.0))
        found.append(connector_subject(props, config, f"connector {name} of {without_login(url)}"))
    return Subject(
        [section for one in found for section in one.sections],
        joined([flow for one in found for flow in one.flows]),
    )


def _explained(log: Path) -> Report:
    from sparkmirror.preflight.log_reading import log_report

    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            return log_report(str(log), lines)
    except OSError as error:
        raise ConfigError(
            f"The log {log} cannot be read: {error.strerror or error}.", "Check the path."
        ) from error


def _print(report: Report, as_json: bool, *, shows_all: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=2))
        return
    from rich.console import Console

    from sparkmirror.tools.check_view import shown

    console = Console(soft_wrap=True, highlight=False)
    for line in shown(report, shows_all=shows_all):
        console.print(line)


def _tell(text: str) -> None:
    click.echo(text, err=True)


def _silent(text: str) -> None:
    """Nobody is watching."""
