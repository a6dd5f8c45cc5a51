"""The commands that copy refuse a PySpark that sparkmirror does not run on before anything else."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import sparkmirror
from sparkmirror import cli
from sparkmirror.errors import ConfigError
from sparkmirror.veil import VEIL

SENTENCE = r"PySpark 3.3.4 is installed; sparkmirror needs 3.5 to 4.3"
WANT_PYSPARK = (
    "sparkmirror.control.process",
    "sparkmirror.control.runner",
    "sparkmirror.spark.jvm",
)


@pytest.fixture(autouse=True)
def old_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """One without much of what our modules import."""
    old = SimpleNamespace(__version__="3.3.4")
    monkeypatch.setattr("sparkmirror.spark.versions.pyspark", old)
    for name in WANT_PYSPARK:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("command", ["run", "worker", "standalone"])
def test_a_command_ends_with_the_exit_code_of_a_wrong_setting(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = A, B\nbootstrap.servers = 127.0.0.1:1\n")
    monkeypatch.setattr(sys, "argv", ["sparkmirror", command, str(file)])
    monkeypatch.setattr(cli, "_signals", lambda: None)
    monkeypatch.setattr(cli, "log_to_stderr", lambda: None)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == ConfigError.exit_code
    assert SENTENCE in capsys.readouterr().err


def test_so_does_a_program() -> None:
    with pytest.raises(ConfigError, match=SENTENCE):
        sparkmirror.start(None, "mm2.properties")  # type: ignore[arg-type]


def test_a_process_has_as_many_files_as_it_may_and_leaves_no_core(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    done: list[str] = []
    for name in ("log_to_stderr", "leave_no_core", "raise_file_limit"):
        monkeypatch.setattr(cli, name, lambda name=name: done.append(name))
    monkeypatch.setattr(sys, "argv", ["sparkmirror", "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    assert sorted(done) == ["leave_no_core", "log_to_stderr", "raise_file_limit"]


def test_an_error_that_ends_a_command_shows_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    VEIL.learn({"a.password": "on-standard-error-1"})

    def fail(**_: object) -> None:
        raise ConfigError("a library says on-standard-error-1")

    monkeypatch.setattr(cli, "commands", fail)
    for name in ("log_to_stderr", "leave_no_core", "raise_file_limit"):
        monkeypatch.setattr(cli, name, lambda: None)
    with pytest.raises(SystemExit):
        cli.main()
    assert capsys.readouterr().err == "sparkmirror: a library says [hidden]\n"
