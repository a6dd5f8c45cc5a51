"""A Spark node without sparkmirror: its Python and its environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_LEFT_OUT = {"PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON"}


def bare_environment() -> dict[str, str]:
    """Without what would let a node find the sparkmirror of these tests."""
    own = str(Path(sys.executable).parent)
    kept = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
    return kept | {"PATH": os.pathsep.join(p for p in kept["PATH"].split(os.pathsep) if p != own)}


def bare_python(environment: dict[str, str]) -> str:
    """A Python of our minor version that has no sparkmirror."""
    python = shutil.which(
        f"python{sys.version_info[0]}.{sys.version_info[1]}", path=environment["PATH"]
    )
    assert python is not None
    has_it = [python, "-c", "import sparkmirror"]
    found = subprocess.run(has_it, env=environment, cwd="/", check=False, capture_output=True)
    assert found.returncode != 0, "nodes have sparkmirror"
    return python
