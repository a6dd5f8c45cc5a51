"""Which versions of PySpark are supported, and whether executors have the driver's: versions in, nothing or an error out."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Mapping

import pyspark

from sparkmirror.errors import ConfigError, SparkError

_COPYING = (3, 5)
_QUERIES = (4, 0)
_LAST = (4, 3)
_UNKNOWN = "unknown"
_PLANS = "2"
"""The format of plans, and of what driver and tasks send each other: another number when one of them changes."""


def require_supported(version: str, *, queries: bool) -> None:
    """ConfigError unless this PySpark can copy, or with `queries` run queries, too. `make spark-matrix` runs both ends."""
    found = _minor(version)
    first = _QUERIES if queries else _COPYING
    if first <= found <= _LAST:
        return
    what = "transform.sql needs" if queries else "sparkmirror needs"
    raise ConfigError(
        f"PySpark {version} is installed; {what} {_shown(first)} to {_shown(_LAST)}.",
        f"Install one of these: pip install 'pyspark>={_shown(first)},<{_LAST[0]}.{_LAST[1] + 1}'.",
    )


def require_installed() -> None:
    """ConfigError unless the PySpark of this process can copy. With some versions other modules cannot even be imported."""
    require_supported(pyspark.__version__, queries=False)


def versions() -> dict[str, str]:
    """What a driver and its executors must have in common, in this process."""
    return {
        "Python": _shown(sys.version_info[:2]),
        "PySpark": _shown(_minor(pyspark.__version__)),
        "sparkmirror": _package_version(),
        "plan format": _PLANS,
    }


def require_same(driver: Mapping[str, str], executor: Mapping[str, str], host: str) -> None:
    """SparkError, with both versions of each, if the executor on `host` has others than the driver."""
    different = [
        f"{name} {executor.get(name, 'none')} instead of {version}"
        for name, version in driver.items()
        if _UNKNOWN not in (version, executor.get(name)) and executor.get(name) != version
    ]
    if different:
        raise SparkError(
            f"The executor on {host} does not run what the driver runs: {', '.join(different)}.",
            "Install the driver's versions on the executors, or send them along: sparkmirror pack env.tar.gz.",
        )


def _package_version() -> str:
    try:
        return importlib.metadata.version("sparkmirror")
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return _UNKNOWN


def _minor(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (0, 0) if match is None else (int(match[1]), int(match[2]))


def _shown(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
