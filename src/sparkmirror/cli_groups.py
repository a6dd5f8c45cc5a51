"""Commands about consumer groups and the flows that they follow: arguments in, tables, trees and exit codes out.

What talks to Kafka is imported when a command needs it.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from sparkmirror.config.client_files import ClientFile
from sparkmirror.errors import SparkMirrorError
from sparkmirror.policy.filters import compile_java_patterns

if TYPE_CHECKING:
    from sparkmirror.tools.sync_group import GroupSync

_FILE = click.Path(path_type=Path)
_SECONDS = click.FloatRange(min=0.1)
_NO_ANSWER = 3
_cluster_option = click.option(
    "--cluster",
    metavar="ALIAS",
    help="The target cluster, if FILE is an mm2.properties whose flows go to several.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def offsets() -> None:
    """Offsets of consumer groups on the other side."""


@offsets.command()
@click.argument("file", type=_FILE)
@click.option("--group", required=True, metavar="GROUP", help="The consumer group.")
@click.option("--pattern", is_flag=True, help="GROUP is a regular expression for whole names.")
@click.option(
    "--source", metavar="ALIAS", help="The cluster that the group comes from (default: any)."
)
@_cluster_option
@_json_option
@click.option(
    "--timeout", type=_SECONDS, default=30.0, show_default=True, help="Seconds for each source."
)
def translate(
    file: Path,
    group: str,
    pattern: bool,
    source: str | None,
    cluster: str | None,
    as_json: bool,
    timeout: float,
) -> None:
    """Show where a group would go on, on the cluster of FILE: the properties of a client, or an mm2.properties."""
    from sparkmirror.tools.observing import client_of, translated_groups
    from sparkmirror.tools.translation import table

    wanted = compile_java_patterns([group], "--group") if pattern else group
    clusters = ClientFile.read(file)
    with client_of(clusters, clusters.target(cluster), source) as client:
        rows = translated_groups(client, wanted, source, timeout)
    if as_json:
        click.echo(json.dumps([row.as_json() for row in rows], indent=2))
    else:
        click.echo("\n".join(table(rows)))


@click.command()
@click.argument("file", type=_FILE)
@_json_option
@click.option(
    "--stale-after",
    type=_SECONDS,
    default=60.0,
    show_default=True,
    help="Seconds after which a heartbeat is too old.",
)
@click.option(
    "--timeout", type=_SECONDS, default=10.0, show_default=True, help="Seconds for each cluster."
)
def topology(file: Path, as_json: bool, stale_after: float, timeout: float) -> None:
    """Draw the flows into the cluster of FILE, or into all clusters of an mm2.properties, by their heartbeats."""
    from sparkmirror.tools.observing import flows_into
    from sparkmirror.tools.topology_view import Clock, document, drawing

    clusters = flows_into(ClientFile.read(file), timeout)
    clock = Clock(time.time_ns() // 1_000_000, int(stale_after * 1000))
    if as_json:
        click.echo(json.dumps(document(clusters, clock), indent=2))
    else:
        click.echo("\n".join(drawing(clusters, clock)))
    if all(cluster.error is not None for cluster in clusters):
        sys.exit(_NO_ANSWER)


@click.command("sync-group")
@click.option("-cgi", "--group", required=True, metavar="GROUP", help="The consumer group.")
@click.option(
    "-src",
    "--source",
    required=True,
    metavar="ALIAS",
    help="The cluster that the group comes from.",
)
@click.option(
    "-pfp",
    "--properties",
    "file",
    required=True,
    type=_FILE,
    help="Properties of a client of the target, or an mm2.properties.",
)
@click.option(
    "-rpc", "--policy", metavar="CLASS", help="The replication policy (default: the file's)."
)
@_cluster_option
@click.option("--once", is_flag=True, help="Do it once and end.")
@click.option(
    "--interval", type=_SECONDS, default=5.0, show_default=True, help="Seconds between two looks."
)
def sync_group(
    group: str,
    source: str,
    file: Path,
    policy: str | None,
    cluster: str | None,
    once: bool,
    interval: float,
) -> None:
    """Commit a group's checkpoints for it on the target while it has no members there, until SIGTERM or Ctrl-C."""
    from sparkmirror.client import MirrorClient
    from sparkmirror.tools.sync_group import GroupSync, Outcome

    clusters = ClientFile.read(file)
    target = clusters.target(cluster)
    props = clusters.client(target, source)
    if policy is not None:
        props["replication.policy.class"] = policy
    with MirrorClient(props, target or "target") as client:
        sync = GroupSync(client, group, source, click.echo)
        if not once:
            _follow(sync, interval)
            return
        outcome = sync.once()
        if not outcome.is_done:
            raise SparkMirrorError(sync.sentence(outcome))
        if outcome is Outcome.UP_TO_DATE:
            click.echo(sync.sentence(outcome))


def _follow(sync: GroupSync, interval: float) -> None:
    """Until the first signal; a second one ends the process at once."""
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    # In a thread of its own: a handler that sets an event which its own thread waits for can block for ever.
    with ThreadPoolExecutor(1, "sync-group") as worker:
        worker.submit(sync.run, interval, stopping).result()
