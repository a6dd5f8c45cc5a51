"""A program of ours as a child process: a command line in; its output, its family of processes and its end out."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
from kafka_tools import wait_for

from sparkmirror.processes import spawn


class Program:
    """A program that can be started again; leaving the block stops it, and nothing of it may be left."""

    def __init__(
        self, command: list[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._command = command
        self._environment = environment
        self.log = log
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        self.process = spawn(self._command, log=self.log, env=self._environment)
        return self

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def says(self, text: str) -> bool:
        return text in self.output

    def wait_until_says(self, text: str, patience: float = 60.0) -> None:
        wait_for(f"the log says {text!r}", lambda: self.says(text), patience)

    def family(self) -> list[psutil.Process]:
        """The process and everything it started."""
        assert self.process is not None
        try:
            main = psutil.Process(self.process.pid)
            return [main, *main.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def jvms(self) -> list[psutil.Process]:
        return [child for child in self.family() if _name(child) == "java"]

    def python_workers(self) -> list[psutil.Process]:
        """The forked workers: those whose parent runs the daemon's module too."""
        found = [p for p in self.family() if "worker_daemon" in _command(p)]
        return [p for p in found if "worker_daemon" in _command(_parent(p))]

    def wait(self, patience: float = 30.0) -> int:
        assert self.process is not None
        return self.process.wait(patience)

    def stop(self) -> int:
        """SIGTERM, and the exit code; nothing it started may be alive after that."""
        assert self.process is not None
        family = self.family()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.wait()
        _, alive = psutil.wait_procs(family, timeout=15)
        assert not alive, f"still alive: {alive}"
        return code

    def kill(self) -> None:
        """SIGKILL to the process itself; what it started must end by itself."""
        assert self.process is not None
        family = self.family()
        self.process.kill()
        self.process.wait()
        _, alive = psutil.wait_procs(family, timeout=30)
        assert not alive, f"outlived their parent: {alive}"


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""


def _command(process: psutil.Process | None) -> str:
    try:
        return " ".join(process.cmdline()) if process is not None else ""
    except psutil.NoSuchProcess:
        return ""


def _parent(process: psutil.Process) -> psutil.Process | None:
    try:
        return process.parent()
    except psutil.NoSuchProcess:
        return None
