"""Real clients of Connect's REST, fetched once into `build/clients`: a client's name comes in, how to run its driver goes out."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sparkmirror.tools.jvm import java

_HERE = Path(__file__).with_name("clients")
_HOME = Path(__file__).resolve().parents[2] / "build" / "clients"
_PATIENCE_S = 300.0
# What pip and npm say when there is nobody to fetch from, rather than something wrong with what they were asked.
_UNREACHABLE = (
    "Could not find a version",
    "Max retries exceeded",
    "ENOTFOUND",
    "ECONNREFUSED",
    "ETIMEDOUT",
    "network",
    "Could not transfer artifact",
    "Unknown host",
)

PYPI: dict[str, tuple[str, tuple[str, ...]]] = {
    "kafka-connect-py": ("kafka_connect_py.py", ("kafka-connect-py==1.0.0",)),
    # It does not say that it needs these.
    "kafkaconnect": (
        "kafkaconnect_lsst.py",
        ("kafkaconnect==1.3.1", "confluent-kafka==2.16.1", "requests==2.34.2", "click==8.5.1"),
    ),
    "kafka-connect-api": ("connect_api.py", ("kafka-connect-api==0.5.10",)),
    # It uses a module that Python has dropped since.
    "kafka-connect-cli": (
        "connect_cli.py",
        ("kafka-connect-cli==0.2.5", "legacy-cgi==2.6.4; python_version >= '3.13'"),
    ),
}
"""Python clients: the driver, and what is installed for it."""
NPM = ("kafka-connect-client@2.3.0",)
_EXTENSION = "org.apache.kafka:connect-basic-auth-extension:4.3.1"


def command(client: str) -> list[str]:
    """The command that tells the story through a client; its arguments follow."""
    if client in PYPI:
        driver, requirements = PYPI[client]
        home = _provided(client, "\n".join((*requirements, sys.version)), _make_venv(requirements))
        return [str(home / "bin" / "python"), str(_HERE / driver)]
    if client == "npm":
        home = _provided(client, "\n".join(NPM), _install_npm)
        # A script finds packages beside itself.
        return ["node", str(shutil.copy(_HERE / "connect_client.js", home))]
    home = _provided(client, (_HERE / "pom.xml").read_text(), _fetch_jars)
    options = ("-XX:TieredStopAtLevel=1", "-Dstdout.encoding=UTF-8")
    return [java(), *options, "-cp", f"{home}/*", str(_HERE / "SourceLab.java")]


def basic_auth_jar() -> Path:
    """Connect's own REST extension for basic authentication, which Kafka's jars for the tests do not hold."""

    def fetch(home: Path) -> None:
        goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
        _fetch(
            [
                _program("mvn"),
                "-q",
                "-B",
                "-f",  # else the settings of the repository's own file would count
                str(_HERE / "pom.xml"),
                goal,
                f"-Dartifact={_EXTENSION}",
                f"-DoutputDirectory={home}",
            ]
        )

    return next(_provided("basic-auth", _EXTENSION, fetch).glob("*.jar"))


def _provided(client: str, contents: str, make: Callable[[Path], None]) -> Path:
    """The folder of a client; made anew if what belongs in it has changed."""
    home = _HOME / client
    stamp = home / ".complete"
    wanted = hashlib.sha256(contents.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        make(home)
        stamp.write_text(wanted)
    return home


def _make_venv(requirements: Sequence[str]) -> Callable[[Path], None]:
    def make(home: Path) -> None:
        venv.create(home, with_pip=True)
        pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        _fetch([*pip, "install", *requirements])

    return make


def _install_npm(home: Path) -> None:
    npm = _program("npm")
    _program("node")
    _fetch([npm, "install", "--no-save", "--no-audit", "--no-fund", "--prefix", str(home), *NPM])


def _fetch_jars(home: Path) -> None:
    maven = _program("mvn")
    goal = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
    _fetch(
        [maven, "-q", "-B", "-f", str(_HERE / "pom.xml"), goal, f"-DoutputDirectory={home}"],
    )


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _fetch(arguments: Sequence[str]) -> None:
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
    )
    said = done.stdout + done.stderr
    if done.returncode and any(sign in said for sign in _UNREACHABLE):
        pytest.skip(f"Nobody to fetch a client from: {said[-300:]}")
    assert done.returncode == 0, said
