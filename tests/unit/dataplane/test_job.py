"""The Spark session's settings."""

from __future__ import annotations

import os

import pytest

from sparkmirror.dataplane.job import session_config


def test_spark_is_quiet_and_small_by_default() -> None:
    config = session_config({}, flows=1)
    assert config["spark.master"] == "local[*]"
    assert config["spark.ui.enabled"] == "false"
    assert config["spark.driver.memory"] == "512m"
    assert "-Dsparkmirror.spark.level=off" in config["spark.driver.extraJavaOptions"]


def test_the_users_keys_win() -> None:
    config = session_config(
        {
            "spark.master": "spark://master:7077",
            "spark.ui.enabled": "true",
            "spark.driver.extraJavaOptions": "-Dmine=1",
            "spark.log.level": "WARN",
            "spark.executor.memory": "1g",
        },
        flows=3,
    )
    assert config["spark.master"] == "spark://master:7077"
    assert config["spark.ui.enabled"] == "true"
    assert config["spark.executor.memory"] == "1g"
    assert config["spark.driver.extraJavaOptions"].endswith("-Dmine=1")
    assert "level=warn" in config["spark.driver.extraJavaOptions"]
    assert "spark.log.level" not in config, "Spark would change the level at run time by it"
    assert "spark.driver.host" not in config, "executors elsewhere could not call back"


@pytest.mark.parametrize(
    ("master", "flows", "wanted"),
    [
        ("local[2]", 2, "local[2]"),
        ("local[2]", 3, "local[3]"),
        ("local", 2, "local[2]"),
        ("local[*]", 1, "local[*]"),
        ("yarn", 9, "yarn"),
    ],
)
def test_every_local_flow_has_a_slot(master: str, flows: int, wanted: str) -> None:
    assert session_config({"spark.master": master}, flows)["spark.master"] == wanted


def test_all_cores_are_enough_for_as_many_flows() -> None:
    cores = os.cpu_count() or 1
    assert session_config({"spark.master": "local[*]"}, cores)["spark.master"] == "local[*]"
    more = session_config({"spark.master": "local[*]"}, cores + 1)["spark.master"]
    assert more == f"local[{cores + 1}]"
