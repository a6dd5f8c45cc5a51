"""Versions of PySpark: those that were tried are taken, others are refused in a sentence."""

from __future__ import annotations

import pytest

from sparkmirror.errors import ConfigError
from sparkmirror.spark.versions import require_supported


@pytest.mark.parametrize("version", ["3.5.0", "3.5.9", "4.0.1", "4.3.0", "4.3.1.dev0"])
def test_copying_runs_on_3_5_to_4_3(version: str) -> None:
    require_supported(version, queries=False)


@pytest.mark.parametrize("version", ["3.4.4", "4.4.0", "5.0.0", "unknown"])
def test_other_versions_are_refused_with_a_remedy(version: str) -> None:
    with pytest.raises(ConfigError, match=rf"PySpark {version} is installed; .* 3.5 to 4.3"):
        require_supported(version, queries=False)


def test_queries_need_4_0() -> None:
    require_supported("4.0.0", queries=True)
    with pytest.raises(ConfigError, match=r"transform.sql needs 4.0 to 4.3"):
        require_supported("3.5.9", queries=True)
