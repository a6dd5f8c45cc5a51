"""The command `preview`: a flow and a query in; what it makes of real records, and an exit code, out.

What talks to Kafka and Spark is imported when the command needs it.
"""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from sparkmirror.errors import ConfigError, SparkMirrorError
from sparkmirror.veil import VEIL

if TYPE_CHECKING:
    from sparkmirror.tools.preview import Preview
    from sparkmirror.tools.preview_flows import QueryFlow

_FILE = click.Path(path_type=Path)
_FAILED = 1
_PLAIN_WIDTH = 160
_HIDDEN = ("[hidden]", "********")


@click.command()
@click.argument("what", metavar="FILE|CONNECTOR")
@click.option("--flow", metavar="A->B", help="The flow, if FILE has several.")
@click.option("--topic", metavar="TOPIC", help="The topic, if the query is for several.")
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="How many records to try it on.",
)
@click.option(
    "--from",
    "begin",
    type=click.Choice(["end", "beginning"]),
    default="end",
    show_default=True,
    help="Whether to take the newest or the oldest.",
)
@click.option("--sql", metavar="QUERY", help="Try this query instead of the flow's.")
@click.option("--sql-file", type=_FILE, help="The same from a file.")
@click.option("--worker", type=_FILE, help="The worker's file, where FILE is a connector's.")
@click.option("--url", help="A worker's REST address, to try the query of a connector that it has.")
@click.option("--explain", is_flag=True, help="Print Spark's plan of the query, too.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.5),
    default=30.0,
    show_default=True,
    help="Seconds for a cluster to answer.",
)
def preview(
    what: str,
    flow: str | None,
    topic: str | None,
    limit: int,
    begin: str,
    sql: str | None,
    sql_file: Path | None,
    worker: Path | None,
    url: str | None,
    explain: bool,
    as_json: bool,
    timeout: float,
) -> None:
    """Try the query of a flow (transform.sql) on real records, without writing anything: before and after side by side.

    Exits with 0 if all is well, 1 if records failed, 2 if the query or a config is refused, 3 if a cluster does not answer.
    """
    if sql is not None and sql_file is not None:
        raise click.UsageError("Give --sql or --sql-file, not both.")
    logging.getLogger("sparkmirror").setLevel(logging.WARNING)
    try:
        text = _sql(sql, sql_file)
        found = _flow(what, worker, url, flow, timeout, any_will_do=text is not None)
        from sparkmirror.tools.preview import Fate, Wish
        from sparkmirror.tools.preview import preview as run_preview

        wish = Wish(topic, text, limit, begin == "beginning", timeout)
        result = run_preview(found, wish)
    except SparkMirrorError as error:
        if not as_json:
            raise
        click.echo(json.dumps({"error": VEIL.hide(str(error))}, indent=2))
        sys.exit(error.exit_code)
    _print(result, explain, as_json)
    sys.exit(_FAILED if result.count(Fate.FAILED) else 0)


def _sql(given: str | None, file: Path | None) -> str | None:
    if file is not None:
        try:
            given = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--sql-file {file} cannot be read: {error}.") from error
    if given is not None and not given.strip():
        raise ConfigError("The query is empty.", "Write SELECT ... FROM records.")
    return given


def _flow(
    what: str,
    worker: Path | None,
    url: str | None,
    wanted: str | None,
    timeout: float,
    *,
    any_will_do: bool,
) -> QueryFlow:
    from sparkmirror.tools.preview_flows import chosen, connector, read_flows

    if url is None or Path(what).exists():
        return chosen(read_flows(Path(what), worker), wanted, any_will_do=any_will_do)
    from sparkmirror.tools.check_rest import connector_config

    props = connector_config(url, what, min(timeout, 10.0))
    masked = [name for name, value in props.items() if value.strip() in _HIDDEN]
    if masked:
        click.echo(
            f"{', '.join(masked)}: the worker gives no secrets away. If logging in fails, name the connector's file instead.",
            err=True,
        )
    return chosen([connector(props, worker, what)], wanted, any_will_do=any_will_do)


def _print(result: Preview, explain: bool, as_json: bool) -> None:
    from sparkmirror.tools.preview_view import document, shown

    if as_json:
        click.echo(json.dumps(document(result, explain=explain), indent=2))
        return
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    for part in shown(result, explain=explain):
        console.print(part)
