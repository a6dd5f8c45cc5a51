"""Versions of PySpark: those that were tried are taken, others are refused in a sentence."""

from __future__ import annotations

import pytest

from sparkmirror.errors import ConfigError, SparkError
from sparkmirror.spark.versions import require_same, require_supported, versions
from sparkmirror.spark.worker import read_plan


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


def test_executors_with_the_driver_s_versions_are_taken() -> None:
    require_same(versions(), versions(), "node1")


def test_an_executor_with_other_versions_is_named_with_both() -> None:
    driver = versions() | {"sparkmirror": "9.9.9", "new": "1"}
    with pytest.raises(SparkError) as caught:
        require_same(driver, versions() | {"more": "1"}, "node1")
    assert "executor on node1" in caught.value.message
    assert f"sparkmirror {versions()['sparkmirror']} instead of 9.9.9" in caught.value.message
    assert "new none instead of 1" in caught.value.message
    assert "Python" not in caught.value.message
    assert "sparkmirror pack" in caught.value.remedy


def test_a_task_looks_at_the_versions_before_it_reads_the_plan() -> None:
    with pytest.raises(SparkError, match=r"plan format 2 instead of 1"):
        read_plan((versions() | {"plan format": "1"}, b"not a pickle"))
