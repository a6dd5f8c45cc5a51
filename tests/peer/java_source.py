"""Small Java programs beside these tests, run with Kafka's jars: lines come in, lines go out."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from sparkmirror.tools.jvm import java, kafka_jars

_PATIENCE_S = 120.0
# Java before 19 takes the encoding of its output from the locale.
_OPTIONS = ("-XX:TieredStopAtLevel=1", "-Dstdout.encoding=UTF-8")


def ask_java(program: str, lines: Sequence[str]) -> list[str]:
    """What the program (a class with a `main`, in a file of its name) answers to these lines."""
    source = Path(__file__).with_name(f"{program}.java")
    done = subprocess.run(
        [java(), *_OPTIONS, "-cp", f"{kafka_jars()}/*", str(source)],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "LC_ALL": "C.UTF-8"},
        timeout=_PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
