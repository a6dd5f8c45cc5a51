"""The command line: arguments in, an exit code out."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from types import FrameType

import click

from sparkmirror.config.properties import read_properties
from sparkmirror.errors import SparkMirrorError
from sparkmirror.logs import log_to_stderr


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="sparkmirror")
def commands() -> None:
    """Replicate Kafka topics between clusters, exactly once, on Spark."""


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
    from sparkmirror.control.runner import MirrorMaker  # pyspark takes long to import

    maker = MirrorMaker(read_properties(file), targets or None)

    def stop(number: int, frame: FrameType | None) -> None:
        maker.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    sys.exit(maker.run())


def main() -> None:
    """Entry point: our errors become one line and an exit code."""
    log_to_stderr()
    try:
        commands(prog_name="sparkmirror")
    except SparkMirrorError as error:
        click.echo(f"sparkmirror: {error}", err=True)
        sys.exit(error.exit_code)
