"""Kafka's own Java programs.

A class name and arguments come in, a command line or the program's output goes out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import javaproperties

from sparkmirror.errors import ConfigError, KafkaError

KAFKA_VERSION = "4.3.1"  # as in pom.xml
_JARS_VARIABLE = "SPARKMIRROR_KAFKA_JARS"
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")
_TOOL_OPTIONS = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dkafka.log.level=ERROR",
)


def kafka_jars(version: str = KAFKA_VERSION) -> Path:
    """Where a version's jars are: `build/kafka/VERSION` of this checkout, and of `KAFKA_VERSION` as the environment says."""
    named = os.environ.get(_JARS_VARIABLE) if version == KAFKA_VERSION else None
    checkout = Path(__file__).resolve().parents[3]
    directory = Path(named) if named else checkout / "build" / "kafka" / version
    if any(directory.glob("kafka-clients-*.jar")):
        return directory
    if version != KAFKA_VERSION:
        remedy = f"Run `make build/kafka/{version}/.fetched` in the repository."
    else:
        remedy = f"Run `make setup` in the repository, or set {_JARS_VARIABLE} to where they are."
    raise ConfigError(f"No Kafka jars in {directory}.", remedy)


@cache
def java() -> str:
    """The Java program to run: that of JAVA_HOME, else the one on the PATH."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home) / "bin" / "java")) if home else None
    found = found or shutil.which("java")
    if found is None:
        raise ConfigError("No Java was found.", "Install a JDK, version 17 or later.")
    return found


def java_command(
    main_class: str, *args: str, options: Sequence[str] = (), version: str = KAFKA_VERSION
) -> list[str]:
    """The command line that runs `main_class` with Kafka's jars and logs to standard output."""
    return [
        java(),
        "-XX:-UsePerfData",
        "-Djava.awt.headless=true",
        f"-Dlog4j2.configurationFile={_LOG_CONFIG}",
        *options,
        "-cp",
        f"{kafka_jars(version)}/*",
        main_class,
        *args,
    ]


def run_tool(
    main_class: str,
    *args: str,
    timeout: float = 60.0,
    input: str | None = None,  # noqa: A002 - named as in subprocess.run
    version: str = KAFKA_VERSION,
) -> str:
    """Run one of Kafka's command-line classes to its end and return its standard output.

    For example: run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", a, "--list")
    """
    command = java_command(main_class, *args, options=_TOOL_OPTIONS, version=version)
    try:
        done = subprocess.run(  # noqa: S603 - our own Java and jars, no shell
            command, input=input, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise KafkaError(f"{main_class} did not end within {timeout:g} s.") from late
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise KafkaError(f"{main_class} ended with exit code {done.returncode}: {said}")
    return done.stdout


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a file that Java reads as its `Properties`."""
    path.write_text(javaproperties.dumps(properties, timestamp=False), encoding="ascii")
