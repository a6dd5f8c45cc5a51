"""The Spark session's settings."""

from __future__ import annotations

import os

import pytest

from sparkmirror.spark.session_config import local_width, session_config


def test_spark_is_quiet_and_small_by_default() -> None:
    config = session_config({})
    assert config["spark.master"] == "local[512]"
    assert config["spark.ui.enabled"] == "false"
    assert config["spark.driver.memory"] == "512m"
    assert config["spark.io.encryption.enabled"] == "true", "plans hold passwords"
    assert "-Dsparkmirror.spark.level=off" in config["spark.driver.extraJavaOptions"]


def test_no_task_is_run_twice_at_once_whatever_the_user_says() -> None:
    assert session_config({"spark.speculation": "true"})["spark.speculation"] == "false"


def test_the_users_keys_win() -> None:
    config = session_config(
        {
            "spark.master": "spark://master:7077",
            "spark.ui.enabled": "true",
            "spark.driver.extraJavaOptions": "-Dmine=1",
            "spark.log.level": "WARN",
            "spark.executor.memory": "1g",
        },
    )
    assert config["spark.master"] == "spark://master:7077"
    assert config["spark.ui.enabled"] == "true"
    assert config["spark.executor.memory"] == "1g"
    assert config["spark.driver.extraJavaOptions"].endswith("-Dmine=1")
    assert "level=warn" in config["spark.driver.extraJavaOptions"]
    assert "spark.log.level" not in config, "Spark would change the level at run time by it"
    assert "spark.driver.host" not in config, "executors elsewhere could not call back"


@pytest.mark.parametrize(
    ("master", "width"),
    [
        ("local[3]", 3),
        ("local[3, 2]", 3),
        ("local", 1),
        ("local[*]", os.cpu_count()),
        ("yarn", None),
        ("spark://master:7077", None),
    ],
)
def test_a_local_master_says_how_many_tasks_are_wanted(master: str, width: int | None) -> None:
    assert local_width(master) == width


def test_no_local_job_ever_waits_for_a_slot() -> None:
    assert session_config({"spark.master": "local[1]"})["spark.master"] == "local[512]"
    assert session_config({"spark.master": "yarn"})["spark.master"] == "yarn"
