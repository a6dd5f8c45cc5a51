"""A program that starts sparkmirror in its Spark session: a file and a master in; it stops when another file is there."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

import sparkmirror
from sparkmirror.errors import ConfigError


def session(master: str) -> SparkSession:
    """With `connect:` before the master it is one of Spark Connect, whose server is started, too."""
    building = SparkSession.builder.appName("notebook").config("spark.ui.enabled", "false")
    address = master.removeprefix("connect:")
    is_classic = address == master
    return (building.master(address) if is_classic else building.remote(address)).getOrCreate()


def total(spark: SparkSession) -> int:
    """What a query of the program's own gives."""
    (row,) = spark.sql("SELECT sum(id * 2) FROM range(101)").collect()
    return int(row[0])


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(file: str, master: str, end: Path) -> None:
    spark = session(master)
    try:
        mirror = sparkmirror.start(spark, file)
    except ConfigError as error:
        say(f"refused: {error}")
    else:
        while not end.exists():
            time.sleep(0.1)
        say(f"beside it: {total(spark)}")
        say(f"stopped: {mirror.stop(600)} {mirror.is_running} {mirror.exit_code}")
    say(f"after it: {total(spark)}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
