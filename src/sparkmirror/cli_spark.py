"""Commands for Spark clusters: the file for spark-submit, and an archive for executors."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from sparkmirror.tools.pack import pack as write_archive


@click.command("app-file")
def app_file() -> None:
    """Print the file for spark-submit: spark-submit ... $(sparkmirror app-file) run mm2.properties"""
    click.echo(Path(__file__).parent / "app" / "sparkmirror_app.py")


@click.command()
@click.argument("archive", type=click.Path(path_type=Path, dir_okay=False))
def pack(archive: Path) -> None:
    """Write an ARCHIVE (tar.gz) of sparkmirror for executors that do not have it.

    Set spark.archives=ARCHIVE#environment and spark.pyspark.python=./environment/bin/python.
    """
    is_terminal = sys.stderr.isatty()

    def tell(what: str) -> None:
        if is_terminal:
            click.echo(f"\r\033[K{what}", nl=False, err=True)

    write_archive(archive, tell)
    size = archive.stat().st_size / (1 << 20)
    tell("")
    click.echo(f"Wrote {archive} ({size:.0f} MiB). For Spark:", err=True)
    click.echo(f"spark.archives = {archive.resolve()}#environment")
    click.echo("spark.pyspark.python = ./environment/bin/python")
    click.echo("On YARN, name the archive in spark.yarn.dist.archives instead.", err=True)
