"""franz-go's kfake, a Kafka cluster in memory that is not Apache's, as a child process; built by Go from its module."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from sparkmirror.processes import spawn
from sparkmirror.tools.clusters import free_port

_SOURCE = Path(__file__).parent / "kfake"
_BUILT = Path(__file__).resolve().parents[2] / "build" / "kfake" / "kfake"
_BUILD_S = 300.0


def _program() -> Path:
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is not installed")
    _BUILT.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([go, "build", "-o", str(_BUILT), "."], cwd=_SOURCE, check=True, timeout=_BUILD_S)
    return _BUILT


class KfakeCluster:
    """One broker in memory: what it holds ends with it."""

    def __init__(self) -> None:
        self._port = free_port()
        self.bootstrap = f"127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._process = spawn([str(_program()), str(self._port)])
        assert self._process.stdout is not None
        assert self._process.stdout.readline().strip().decode() == self.bootstrap
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
