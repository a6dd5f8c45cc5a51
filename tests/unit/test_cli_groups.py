"""The commands about groups, as far as no cluster is needed: options, and what is wrong input."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkmirror.cli import commands
from sparkmirror.errors import ConfigError, ConnectionFailed

AWAY = "bootstrap.servers = 127.0.0.1:1\n"
FLOWS = (
    "clusters = A, B\nA.bootstrap.servers = 127.0.0.1:1\nB.bootstrap.servers = 127.0.0.1:2\n"
    "A->B.enabled = true\n"
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "client.properties"
    path.write_text(AWAY)
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(commands, [str(argument) for argument in arguments])


def test_help_by_one_letter() -> None:
    result = run("sync-group", "-h")
    assert result.exit_code == 0
    for option in ("-cgi, --group", "-src, --source", "-pfp, --properties", "-rpc, --policy"):
        assert option in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("sync-group", "-cgi", "g", "-src", "A"),
        ("sync-group", "-cgi", "g", "-pfp", "x"),
        ("sync-group", "-src", "A", "-pfp", "x"),
        ("sync-group", "-cgi", "g", "-src", "A", "-pfp", "x", "--interval", "0"),
        ("offsets", "translate", "x"),
        ("topology",),
    ],
)
def test_missing_and_wrong_options(arguments: tuple[str, ...]) -> None:
    assert run(*arguments).exit_code == 2


@pytest.mark.parametrize(
    ("names", "policy"),
    [
        (("-cgi", "-src", "-pfp"), "-rpc"),
        (("--group", "--source", "--properties"), "--policy"),
    ],
)
def test_both_spellings_reach_the_cluster(
    file: Path, names: tuple[str, str, str], policy: str
) -> None:
    options = [item for pair in zip(names, ("g", "A", str(file)), strict=True) for item in pair]
    result = run("sync-group", *options, "--once")
    assert isinstance(result.exception, ConnectionFailed)
    java = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    assert isinstance(
        run("sync-group", *options, policy, java, "--once").exception, ConnectionFailed
    )
    wrong = run("sync-group", *options, policy, "no.such.Policy", "--once").exception
    assert isinstance(wrong, ConfigError)
    assert "no.such.Policy" in wrong.message


def test_a_pattern_that_cannot_be_used_is_named(file: Path) -> None:
    error = run("offsets", "translate", "--group", "a(", "--pattern", file).exception
    assert isinstance(error, ConfigError)
    assert "--group has the pattern 'a('" in error.message


def test_clusters_that_are_away(file: Path, tmp_path: Path) -> None:
    assert isinstance(run("topology", file).exception, ConnectionFailed)
    flows = tmp_path / "mm2.properties"
    flows.write_text(FLOWS)
    result = run("topology", flows)
    assert result.exit_code == 3
    first, second = result.output.splitlines()
    assert first.startswith("A (127.0.0.1:1): cannot be asked. No broker of cluster A")
    assert second.startswith("B (127.0.0.1:2): cannot be asked. No broker of cluster B")


def test_wrong_input_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sparkmirror", "topology", str(tmp_path / "none.properties")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("sparkmirror: The file ")
    assert done.stderr.count("\n") == 1


def test_spark_is_not_loaded_for_these_commands() -> None:
    code = (
        "import sys, sparkmirror.cli, sparkmirror.tools.observing, sparkmirror.tools.sync_group\n"
        "assert not {'pyspark', 'py4j'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
