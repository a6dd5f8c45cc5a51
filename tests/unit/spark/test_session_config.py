"""The Spark session's settings."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sparkmirror.errors import ConfigError
from sparkmirror.spark.session_config import (
    LocalMaster,
    is_encrypted,
    open_ports,
    overruled,
    require_classic,
    require_hadoop,
    session_config,
    spark_defaults,
)


def test_spark_is_quiet_and_small_by_default() -> None:
    config = session_config({})
    assert config["spark.master"] == "local[512, 4]"
    assert config["spark.ui.enabled"] == "false"
    assert config["spark.driver.memory"] == "512m"
    assert config["spark.io.encryption.enabled"] == "true", "plans hold passwords"
    assert "-Dsparkmirror.spark.level=off" in config["spark.driver.extraJavaOptions"]


def test_the_pages_are_on_where_the_user_says_so_also_on_a_local_master() -> None:
    assert session_config({"spark.ui.enabled": "true"})["spark.ui.enabled"] == "true"


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
    ("master", "local"),
    [
        ("local[3]", LocalMaster(3)),
        ("local[3, 2]", LocalMaster(3, 2)),
        ("local[*,7]", LocalMaster(os.cpu_count() or 1, 7)),
        ("local", LocalMaster(1)),
        ("local[*]", LocalMaster(os.cpu_count() or 1)),
        ("yarn", None),
        ("local-cluster[2,1,1024]", None),
        ("spark://master:7077", None),
    ],
)
def test_a_local_master_says_how_many_tasks_are_wanted(
    master: str, local: LocalMaster | None
) -> None:
    assert LocalMaster.parse(master) == local


def test_no_local_job_ever_waits_for_a_slot_and_a_task_fails_alone() -> None:
    assert session_config({"spark.master": "local[1]"})["spark.master"] == "local[512, 4]"
    assert session_config({"spark.master": "local[1,2]"})["spark.master"] == "local[512, 2]"
    assert session_config({"spark.master": "yarn"})["spark.master"] == "yarn"


def test_what_suits_a_small_local_driver_is_not_forced_on_a_cluster() -> None:
    config = session_config({"spark.master": "spark://master:7077"})
    for key in ("spark.ui.enabled", "spark.driver.memory", "spark.executor.killOnFatalError.depth"):
        assert key not in config
    assert "SerialGC" not in config["spark.driver.extraJavaOptions"]
    assert "level=warn" in config["spark.driver.extraJavaOptions"]


def test_a_setting_that_cannot_be_had_is_named() -> None:
    assert overruled({"spark.speculation": "false"}) == []
    (note,) = overruled({"spark.speculation": "true"})
    assert "spark.speculation=true is ignored" in note


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ({}, False),
        ({"spark.master": "local[4]"}, False),
        ({"spark.master": "spark://m:7077"}, True),
        ({"spark.master": "yarn", "spark.authenticate": "false"}, True),
        ({"spark.master": "yarn", "spark.authenticate": " TRUE "}, False),
    ],
)
def test_ports_of_spark_that_ask_for_no_secret_are_told(
    settings: dict[str, str], is_told: bool
) -> None:
    found = open_ports(settings)
    assert len(found) == is_told
    assert all("can run code there" in note for note in found)


def test_speculation_of_a_session_of_others_is_told_as_what_it_is() -> None:
    (note,) = overruled({"spark.speculation": "true"}, is_shared=True)
    assert "ignored" not in note
    assert "stays in force" in note
    assert "takes a slot" in note
    assert overruled({"spark.speculation": "false"}, is_shared=True) == []


def test_spark_defaults_are_read_where_spark_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_CONF_DIR", raising=False)
    assert spark_defaults(tmp_path) == {}
    file = tmp_path / "conf" / "spark-defaults.conf"
    file.parent.mkdir()
    file.write_text("spark.master   local[3]\nspark.my.key=7\nother 1\n")
    assert spark_defaults(tmp_path) == {"spark.master": "local[3]", "spark.my.key": "7"}
    monkeypatch.setenv("SPARK_CONF_DIR", str(file.parent))
    assert spark_defaults(Path("/nowhere"))["spark.my.key"] == "7"


@pytest.mark.parametrize(
    ("on", "encrypted"),
    [
        ([], False),
        (["spark.authenticate"], False),
        (["spark.network.crypto.enabled"], False),  # without a secret there is no key
        (["spark.authenticate", "spark.network.crypto.enabled"], True),
        (["spark.authenticate", "spark.authenticate.enableSaslEncryption"], True),
        (["spark.ssl.rpc.enabled"], True),
        (["spark.io.encryption.enabled"], False),  # of files
    ],
)
def test_when_the_network_cannot_read_what_executors_get(on: list[str], encrypted: bool) -> None:
    assert is_encrypted(dict.fromkeys(on, " True ")) == encrypted


@pytest.mark.parametrize(
    ("user", "named"),
    [
        ({"spark.remote": "sc://host:15002"}, "spark.remote asks"),
        ({"spark.remote": "local[2]", "spark.master": "yarn"}, "Remove spark.remote,"),
        ({"spark.master": "yarn", "spark.api.mode": "Connect"}, "spark.api.mode=connect asks"),
        ({"spark.master": "sc://host"}, "spark.master=sc://… asks"),
    ],
)
def test_spark_connect_is_refused_by_the_name_of_its_setting(
    user: dict[str, str], named: str
) -> None:
    with pytest.raises(ConfigError, match="asks for Spark Connect") as refused:
        require_classic(user)
    assert named in str(refused.value)
    assert "docs/decisions/spark-connect.md" in str(refused.value)


@pytest.mark.parametrize("master", [{}, {"spark.master": "local[2]"}])
def test_a_local_master_runs_where_other_programs_use_spark_connect(
    master: dict[str, str],
) -> None:
    require_classic(master | {"spark.api.mode": "connect"})


def test_yarn_needs_to_be_found(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set"):
        require_hadoop("yarn", {"HADOOP_CONF_DIR": ""}, tmp_path)
    require_hadoop("yarn", {"HADOOP_CONF_DIR": "/etc/hadoop"}, tmp_path)
    require_hadoop("yarn", {"YARN_CONF_DIR": "/etc/hadoop"}, tmp_path)
    require_hadoop("spark://host:7077", {}, tmp_path)
    (tmp_path / "spark-env.sh").touch()  # it may set the variable for spark-submit alone
    require_hadoop("yarn", {"SPARK_CONF_DIR": str(tmp_path)}, tmp_path)


def test_failures_of_a_cluster_are_not_counted_for_ever() -> None:
    interval = "spark.executor.failuresValidityInterval"
    assert session_config({"spark.master": "yarn"})[interval] == "1h"
    assert session_config({"spark.master": "yarn", interval: "2h"})[interval] == "2h"
    assert interval not in session_config({})
    old = {"spark.yarn.executor.failuresValidityInterval": "2h"}
    assert interval not in session_config({"spark.master": "yarn", **old}), "it would win over it"


_HEARTBEAT = "spark.executor.heartbeatInterval"
_LOST_AFTER = "spark.storage.blockManagerHeartbeatTimeoutMs"


def test_executors_of_hosts_that_are_cut_off_are_given_up_soon() -> None:
    config = session_config({"spark.master": "yarn"})
    assert (config[_HEARTBEAT], config[_LOST_AFTER]) == ("3s", "15s")
    assert config["spark.network.timeoutInterval"] == "5s"
    assert _LOST_AFTER not in session_config({}), "there is no other host"
    assert session_config({"spark.master": "yarn", _LOST_AFTER: "40s"})[_LOST_AFTER] == "40s"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (
            _HEARTBEAT,
            "60s",
        ),  # Spark wants it to be no longer than the time after which executors are lost
        ("spark.network.timeoutInterval", "30s"),  # this, too
        ("spark.network.timeout", "600s"),  # Spark takes it for that time
        ("spark.storage.blockManagerSlaveTimeoutMs", "60s"),  # what it was called before
    ],
)
def test_when_executors_are_lost_follows_what_the_user_sets(key: str, value: str) -> None:
    config = session_config({"spark.master": "yarn", key: value})
    assert _LOST_AFTER not in config
    assert config[key] == value


@pytest.mark.parametrize("theirs", ["-XX:+UseG1GC", "-Da=b -XX:+UseParallelGC -Dc=d"])
def test_a_jvm_gets_one_garbage_collector(theirs: str) -> None:
    options = session_config({"spark.driver.extraJavaOptions": theirs})
    assert "UseSerialGC" not in options["spark.driver.extraJavaOptions"], "it would not start"
    assert theirs in options["spark.driver.extraJavaOptions"]
    none = session_config({"spark.driver.extraJavaOptions": "-XX:-UseG1GC"})
    assert "UseSerialGC" in none["spark.driver.extraJavaOptions"]


def test_a_jvm_that_runs_already_gets_the_log_level_by_its_key() -> None:
    """Its options cannot be changed any more."""
    level = {"spark.log.level": "ERROR"}
    assert session_config(level, takes_options=False)["spark.log.level"] == "ERROR"
    assert "spark.log.level" not in session_config({}, takes_options=False)
    assert "spark.log.level" not in session_config(level), "Spark would change the level by it"


def test_what_spark_sizes_by_the_plenty_of_local_slots_stays_small() -> None:
    """512 partitions of a frame that says no number took a JVM of 512 MB to the end of its memory."""
    key = "spark.default.parallelism"
    assert session_config({"spark.master": "local[3]"})[key] == "3"
    assert session_config({"spark.master": "local[3]", key: "7"})[key] == "7"
    assert key not in session_config({"spark.master": "yarn"})
    assert session_config({})["spark.rpc.netty.dispatcher.numThreads"] == "4"


def test_who_sees_sparks_ports_and_pages_can_do_little() -> None:
    config = session_config({})
    assert config["spark.ui.killEnabled"] == "false"
    assert config["spark.authenticate"] == "true", "on a local master"
    assert "password" in config["spark.redaction.regex"]
    assert "jaas" in config["spark.redaction.regex"]
