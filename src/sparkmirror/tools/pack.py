"""An archive of sparkmirror for `spark.archives`: the installed packages in, a tar.gz that executors unpack out.

Executors need no sparkmirror then, only a Python of the same version. The archive holds sparkmirror, what it needs but PySpark
(an executor has its own), and `bin/python`, which starts the executor's Python with these on its path.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import re
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from sparkmirror.errors import ConfigError

_PACKAGE = "sparkmirror"
_FINDER = "pyspark_sparkmirror"
"""The module by which Spark finds the data source of this package."""
_LEFT_OUT = frozenset({"pyspark", "py4j"})
_LAUNCHER = """#!/bin/sh
# Starts the Python of this machine with the packages of this archive. SPARKMIRROR_PYTHON names another one.
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
python=${{SPARKMIRROR_PYTHON:-python{version}}}
if ! command -v "$python" > /dev/null; then
  echo "sparkmirror: $python was not found on this executor; the archive was made for Python {version}." >&2
  echo "Install it, or set spark.executorEnv.SPARKMIRROR_PYTHON to its path." >&2
  exit 1
fi
PYTHONPATH="$here/lib${{PYTHONPATH:+:$PYTHONPATH}}" exec "$python" "$@"
"""


def pack(archive: Path, tell: Callable[[str], None]) -> None:
    """Write the archive; ConfigError if a package that is needed is not installed."""
    names = sorted(_needed(_PACKAGE))
    with tarfile.open(archive, "w:gz", compresslevel=6) as tar:
        launcher = _LAUNCHER.format(version=f"{sys.version_info[0]}.{sys.version_info[1]}").encode()
        entry = tarfile.TarInfo("bin/python")
        entry.size, entry.mode = len(launcher), 0o755
        tar.addfile(entry, io.BytesIO(launcher))
        for number, name in enumerate(names, 1):
            tell(f"{name} ({number} of {len(names)})")
            for file, inside in _files(name):
                tar.add(file, f"lib/{inside}", recursive=False)


def _needed(name: str) -> set[str]:
    """The installed packages that one needs, and itself; of sparkmirror also the extras that are installed."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        each = waiting.pop()
        if each in found or each in _LEFT_OUT:
            continue
        found.add(each)
        for requirement in _distribution(each).requires or ():
            needs = re.split(r"[\s;<>=!~\[(]", requirement, maxsplit=1)[0].lower().replace("_", "-")
            is_extra, is_conditional = "extra ==" in requirement, ";" in requirement
            if is_extra and each != name:
                continue
            if not is_conditional or _is_installed(needs):
                waiting.append(needs)
    return found


def _distribution(name: str) -> importlib.metadata.Distribution:
    try:
        return importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        raise ConfigError(
            f"The package {name} is not installed.", "Install sparkmirror with its dependencies."
        ) from None


def _is_installed(name: str) -> bool:
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _files(name: str) -> Iterator[tuple[Path, PurePosixPath]]:
    """The files of a package, and where they are below its site-packages."""
    if name == _PACKAGE:  # it may be installed as a link to its sources
        found = importlib.util.find_spec(_PACKAGE)
        (folder,) = map(Path, (found and found.submodule_search_locations) or ())
        for file in sorted(folder.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                yield file, PurePosixPath(_PACKAGE, *file.relative_to(folder).parts)
        finder = folder.with_name(f"{_FINDER}.py")
        yield finder, PurePosixPath(finder.name)
    for listed in _distribution(name).files or ():
        inside = PurePosixPath(listed)
        is_outside = inside.is_absolute() or ".." in inside.parts or inside.suffix == ".pth"
        is_ours = name == _PACKAGE and inside.parts[0] in (_PACKAGE, f"{_FINDER}.py")
        file = Path(str(listed.locate()))
        if not is_outside and not is_ours and "__pycache__" not in inside.parts and file.is_file():
            yield file, inside
