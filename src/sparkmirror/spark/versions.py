"""Which versions of PySpark are supported: a version in, nothing or a ConfigError out."""

from __future__ import annotations

import re

from sparkmirror.errors import ConfigError

_COPYING = (3, 5)
_QUERIES = (4, 0)
_LAST = (4, 3)


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


def _minor(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (0, 0) if match is None else (int(match[1]), int(match[2]))


def _shown(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
