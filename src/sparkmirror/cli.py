"""The command line: arguments in, an exit code out."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from sparkmirror.cli_check import check
from sparkmirror.cli_groups import offsets, sync_group, topology
from sparkmirror.cli_preview import preview
from sparkmirror.cli_spark import app_file, pack
from sparkmirror.config.connector_files import read_connector
from sparkmirror.config.environment import properties_from_environment
from sparkmirror.config.properties import read_properties
from sparkmirror.config.worker import WorkerConfig
from sparkmirror.errors import SparkMirrorError
from sparkmirror.logs import log_to_stderr
from sparkmirror.processes import leave_no_core, raise_file_limit
from sparkmirror.signals import Signals
from sparkmirror.veil import VEIL


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sparkmirror")
def commands() -> None:
    """Replicate Kafka topics between clusters, exactly once, on Spark."""


for _command in (check, preview, offsets, topology, sync_group, app_file, pack):
    commands.add_command(_command)


@commands.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--clusters",
    multiple=True,
    metavar="ALIAS...",
    help="Run only the flows into these clusters (repeat it, or separate aliases by commas or blanks).",
)
@click.argument("more", nargs=-1)
def run(file: Path, clusters: tuple[str, ...], more: tuple[str, ...]) -> None:
    """Run the flows of an mm2.properties FILE until SIGTERM or Ctrl-C (MirrorMaker 2's dedicated mode)."""
    if more and not clusters:
        raise click.UsageError(f"Unexpected argument: {more[0]}")
    # `--clusters A B`, as MirrorMaker 2 takes it, arrives as one option value and further arguments.
    targets = [alias for text in (*clusters, *more) for alias in text.replace(",", " ").split()]
    signals = _signals()
    _require_pyspark()
    from sparkmirror.control.runner import MirrorMaker  # pyspark takes long to import

    maker = MirrorMaker(read_properties(file), targets or None)
    signals.pass_to(maker.stop)
    sys.exit(maker.run())


@commands.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
def worker(file: Path | None) -> None:
    """Run a Connect worker from a connect-distributed.properties FILE, from CONNECT_* variables, or both."""
    signals = _signals()
    _require_pyspark()
    from sparkmirror.control.process import ConnectProcess  # pyspark takes long to import

    process = ConnectProcess(WorkerConfig.parse(_worker_properties(file)))
    signals.pass_to(process.stop)
    sys.exit(process.run())


@commands.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("connectors", nargs=-1, type=click.Path(path_type=Path))
def standalone(file: Path, connectors: tuple[Path, ...]) -> None:
    """Run a Connect worker without a group from FILE, with the connectors of the given files (properties or JSON)."""
    signals = _signals()
    _require_pyspark()
    from sparkmirror.control.process import ConnectProcess  # pyspark takes long to import

    config = WorkerConfig.parse(_worker_properties(file), standalone=True)
    configs = [read_connector(path) for path in connectors]
    process = ConnectProcess(config, configs)
    signals.pass_to(process.stop)
    sys.exit(process.run())


def _signals() -> Signals:
    signals = Signals()
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started us
        signals.end_with_parent()
    return signals


def _require_pyspark() -> None:
    """ConfigError, before anything is started, if sparkmirror does not run on the PySpark that is installed."""
    from sparkmirror.spark.versions import require_installed  # pyspark takes long to import

    require_installed()


def _worker_properties(file: Path | None) -> dict[str, str]:
    """What the file says, and over it what the environment says."""
    properties = {} if file is None else read_properties(file)
    return {**properties, **properties_from_environment(os.environ)}


def main() -> None:
    """Entry point: our errors become one line and an exit code."""
    log_to_stderr()
    leave_no_core()
    raise_file_limit()
    try:
        commands(prog_name="sparkmirror")
    except SparkMirrorError as error:
        click.echo(VEIL.hide(f"sparkmirror: {error}"), err=True)
        sys.exit(error.exit_code)
